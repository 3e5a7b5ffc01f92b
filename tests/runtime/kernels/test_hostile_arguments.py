"""Arguments no compiler writes: they must be refused, or cost no more than the tensors they come with."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.ir.aten.reference import pool
from edgewright.ir.aten.reference.conv import convolution
from edgewright.runtime.registry import KERNELS

HUGE = 2**62
X = np.ones((1, 2, 4, 4), np.float32)
W = np.ones((2, 2, 3, 3), np.float32)
ROW = np.arange(4.0, dtype=np.float32)
AT = np.array([0, 3])
Q = "quantized_decomposed::"
SCALE, ZERO = np.ones(4), np.zeros(4, np.int64)


def conv(
    x: Any = X,
    w: Any = W,
    b: Any = None,
    stride: Any = (1, 1),
    pad: Any = (0, 0),
    dil: Any = (1, 1),
    t: bool = False,
    extra: Any = (0, 0),
    g: int = 1,
) -> tuple[str, list[Any]]:
    return "aten::convolution.out", [x, w, b, list(stride), list(pad), list(dil), t, list(extra), g]


REFUSED: list[tuple[str, list[Any]]] = [
    conv(stride=(0, 1)),
    conv(stride=(1, 1, 1)),
    conv(pad=(-1, 0)),
    conv(dil=(HUGE, HUGE)),
    conv(dil=(0, 1)),
    conv(g=0),
    conv(g=-1),
    conv(g=3),
    conv(w=W[:, :1]),
    conv(w=W[:, :, :0]),
    conv(b=ROW),
    conv(x=X[0]),
    conv(t=True, extra=(1, 1)),
    conv(t=True, extra=(-1, 0)),
    conv(t=True, pad=(HUGE, HUGE)),
    ("aten::convolution_backward.out", [X, X, W, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3]),
    ("aten::max_pool2d_with_indices.out", [X, [2, 2], [0, 1], [0, 0], [1, 1], False]),
    ("aten::max_pool2d_with_indices.out", [X, [2, 2], [1, 1], [2, 2], [1, 1], False]),
    ("aten::max_pool2d_with_indices.out", [X, [0, 2], [1, 1], [0, 0], [1, 1], False]),
    ("aten::max_pool2d_with_indices.out", [X, [2, 2], [1, 1], [0, 0], [HUGE, 1], False]),
    ("aten::max_pool2d_with_indices.out", [X[..., :0], [2, 2], [1, 1], [0, 0], [1, 1], False]),
    ("aten::avg_pool2d.out", [X, [2, 2], [1, 1], [0, 0], False, True, 0]),
    ("aten::avg_pool2d.out", [X, [HUGE, 2], [1, 1], [0, 0], False, True, None]),
    ("aten::_adaptive_avg_pool2d.out", [X, [-1, 2]]),
    ("aten::upsample_nearest2d.vec_out", [X, None, None]),
    ("aten::upsample_nearest2d.vec_out", [X, [2, 2], [1.0, 1.0]]),
    ("aten::upsample_nearest2d.vec_out", [X, None, [float("nan"), 1.0]]),
    ("aten::upsample_bilinear2d.vec_out", [X, [0, 2], False, None]),
    ("aten::grid_sampler_2d.out", [X, np.zeros((1, 2, 2, 2), np.float32), 3, 0, False]),
    ("aten::grid_sampler_2d.out", [X, np.zeros((2, 2, 2, 2), np.float32), 0, 0, False]),
    ("aten::_fft_r2c.out", [ROW, [1], 0, True]),
    ("aten::_fft_r2c.out", [ROW, [0, 0], 0, True]),
    ("aten::_fft_r2c.out", [ROW, [0], 3, True]),
    ("aten::_fft_c2r.out", [ROW.astype(np.complex64), [0], 0, HUGE]),
    ("aten::_fft_c2r.out", [ROW.astype(np.complex64), [0], 0, 0]),
    ("aten::mm.out", [X[0, 0], X[0]]),
    ("aten::bmm.out", [X[0], X[0, :1]]),
    ("aten::addmm.out", [np.ones((5, 4), np.float32), X[0, 0], X[0, 0], 1, 1]),
    ("aten::linear.out", [ROW, ROW[:, None], None]),
    ("aten::gather.out", [ROW, 0, np.array([-1]), False]),
    ("aten::gather.out", [ROW, 0, np.array([4]), False]),
    ("aten::gather.out", [ROW, 1, AT, False]),
    ("aten::gather.out", [X[0, 0], 0, AT, False]),
    ("aten::scatter.src_out", [ROW, 0, AT, ROW[:1]]),
    ("aten::scatter.value_out", [ROW, 0, np.array([HUGE]), 1]),
    ("aten::scatter_add.out", [ROW, 0, np.array([-1]), ROW]),
    ("aten::index_select.out", [ROW, 0, np.array([-1])]),
    ("aten::index_select.out", [ROW, 0, AT[None]]),
    ("aten::embedding.out", [X[0, 0], np.array([4]), -1, False, False]),
    ("aten::embedding.out", [X[0, 0], np.array([0.5]), -1, False, False]),
    ("aten::index.Tensor_out", [ROW, [np.array([-5])]]),
    ("aten::index.Tensor_out", [ROW, [np.array([True, False])]]),
    ("aten::index.Tensor_out", [ROW, [AT, AT]]),
    ("aten::index.Tensor_out", [ROW, [None]]),
    ("aten::index.Tensor_out", [X[0, 0], [AT, np.arange(3)]]),
    ("aten::index_put.out", [ROW, [AT], np.ones(3, np.float32), False]),
    ("aten::select_scatter.out", [X[0, 0], ROW, 0, 4]),
    ("aten::slice_scatter.out", [ROW, ROW, 0, 0, 4, 0]),
    ("aten::slice_scatter.out", [ROW, ROW, 0, 0, 3, 1]),
    ("aten::masked_select.out", [ROW, np.ones(3, bool)]),
    ("aten::masked_scatter.out", [ROW, np.ones(4, bool), ROW[:3]]),
    ("aten::repeat_interleave.Tensor_out", [np.array([1, -1]), None]),
    ("aten::repeat_interleave.Tensor_out", [np.array([1, 2]), 4]),
    (f"{Q}quantize_per_tensor.out", [ROW, 0.0, 0, -128, 127, 1]),
    (f"{Q}quantize_per_tensor.out", [ROW, 1.0, 0, -128, 128, 1]),
    (f"{Q}quantize_per_tensor.out", [ROW, 1.0, 0, 0, 1, 6]),
    (f"{Q}quantize_per_tensor.Tensor_out", [ROW, SCALE, ZERO[:1], -128, 127, 1]),
    (f"{Q}quantize_per_channel.out", [ROW, SCALE[:3], ZERO, 0, -128, 127, 1]),
    (f"{Q}quantize_per_channel.out", [ROW, SCALE, ZERO, 1, -128, 127, 1]),
    (f"{Q}quantize_per_token.out", [ROW, SCALE, ZERO, -128, 127, 1]),
    (f"{Q}choose_qparams.Tensor_out", [ROW, 5, 5, 1e-7, 1]),
    (f"{Q}choose_qparams.Tensor_out", [ROW[:0], 0, 5, 1e-7, 1]),
    (f"{Q}choose_qparams_per_token_asymmetric.out", [ROW[:0], 1]),
    (f"{Q}embedding_4bit.out", [np.ones((2, 3), np.uint8), np.ones((2, 4), np.float32), None, -8, 7, AT[:1]]),
    (f"{Q}embedding_byte.out", [np.ones((2, 3), np.int8), np.ones(2, np.float32), None, -128, 127, np.array([2])]),
    (f"{Q}mixed_mm.out", [X[0, 0], np.ones((3, 4), np.int8), np.ones(3, np.float32), None]),
]


@pytest.mark.parametrize(("key", "args"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_impossible_arguments_are_refused(key: str, args: list[Any]) -> None:
    kernel = KERNELS[key]
    assert kernel.shape is not None
    with pytest.raises((ValueError, IndexError)):
        _ = kernel.shape(*args), kernel.fn(*args)


def bounded(call: Any) -> Any:
    """The call's result; it may take no memory to speak of."""
    tracemalloc.start()
    result = call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 22
    return result


def test_repeats_are_counted_before_they_are_made() -> None:
    shape = KERNELS["aten::repeat_interleave.Tensor_out"].shape
    assert shape is not None
    assert bounded(lambda: shape(np.array([HUGE, HUGE, HUGE]), None)) == (3 * HUGE,)


def test_padding_of_a_convolution_costs_nothing() -> None:
    pad, stride = 2**40, 2**40
    result = bounded(lambda: convolution(X, W, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1))
    assert result.shape == (1, 2, 3, 3)
    assert result[0, 0].tolist() == [[0, 0, 0], [0, 18, 0], [0, 0, 0]]


@pytest.mark.parametrize("stride", [1, 3, 2**39, 2**40])
def test_a_window_wider_than_the_image_costs_nothing(stride: int) -> None:
    window = [2**40] * 2, [stride] * 2, [2**39] * 2
    values, places = bounded(lambda: pool.max_pool2d(X, *window))
    assert values.shape == pool.max_pool2d_shape(X, *window)[0]
    assert values.max() == 1
    assert places.max() < 16
    mean = bounded(lambda: pool.avg_pool2d(X, *window, False, False))
    assert mean[0, 0, 0, 0] == 1


def test_resampling_by_a_hostile_factor_costs_nothing() -> None:
    key = "aten::_upsample_bilinear2d_aa.out"
    for factor in (1e-300, 1e300, float("inf"), float("nan"), -1.0):
        with np.errstate(all="ignore"):
            result = bounded(lambda f=factor: KERNELS[key].fn(X, [3, 3], False, f, f))
        assert result.shape == (1, 2, 3, 3)


def test_a_long_strip_does_not_become_a_square() -> None:
    strip = np.ones((1, 1, 4096, 1), np.float32)
    for key, args in (
        ("aten::upsample_bilinear2d.vec_out", [strip, [1, 4096], False, None]),
        ("aten::_upsample_bilinear2d_aa.out", [strip, [1, 4096], False, None, None]),
        ("aten::_adaptive_avg_pool2d.out", [strip, [1, 4096]]),
    ):
        result = bounded(lambda k=key, a=args: KERNELS[k].fn(*a))
        assert np.allclose(result, 1)


def test_points_far_outside_the_image_read_nothing() -> None:
    points = np.array([[[[1e38, -1e38], [np.nan, np.inf], [-np.inf, 0]]]], np.float32)
    for mode in range(3):
        for padding in range(3):
            with np.errstate(all="ignore"):
                result = KERNELS["aten::grid_sampler_2d.out"].fn(X, points, mode, padding, False)
            assert result.shape == (1, 2, 1, 3)
            inside = result[~np.isnan(result)]  # the image is all ones: anything else is not from it
            assert not result.any() if padding == 0 else (inside == 1).all()
