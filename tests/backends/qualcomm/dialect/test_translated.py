"""Operators that Qualcomm's emulator does not run, or not with these operands: numpy runs their translation, which
torch judges here, and machine code gives the same.

What the emulator does run is compared with it by ``tests/backends/qualcomm/test_rows.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.to_core import conv
from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from tests.engine.qnn import fixed, given, plain, same, tensor, whole

WINDOW = {"stride": [2, 1], "pad_amount": [[1, 0], [1, 2]], "dilation": [1, 2]}


def weights(shape: tuple[int, ...], dtype: str = "int8", scale: float = 0.01) -> Value:
    """Symmetric, with extreme ones."""
    info: Any = np.iinfo(dtype)
    data = np.random.default_rng(len(shape)).integers(info.min, info.max, shape, np.int64, endpoint=True)
    data.reshape(-1)[:2] = info.min + 1, info.max
    kind = np.dtype(dtype)
    q = QParams(scale, 0, kind, int(info.min), int(info.max))
    return Value("w", kind, shape, tuple(range(len(shape))), data.astype(kind), q=q)


def real(value: Value, stored: Array) -> torch.Tensor:
    assert value.q is not None
    return torch.from_numpy((stored.astype(np.float64) - value.q.zero_point) * np.float64(np.float32(value.q.scale)))


def judged(made: Graph, wanted: torch.Tensor, inputs: list[Array]) -> None:
    """The reference is within a step of exact arithmetic, which one in a thousand may be: products are rounded in
    float32 or float64. Machine code gives the reference's integers."""
    (out,) = made.outputs
    assert out.q is not None
    exact = np.clip(np.rint(wanted.numpy() / np.float64(np.float32(out.q.scale))) + out.q.zero_point, out.q.qmin,
                    out.q.qmax)  # fmt: skip
    found = DIALECT.execute(made, inputs)[0].astype(np.float64)
    assert np.unique(exact).size > 8
    assert np.abs(found - exact).max() <= 1 and np.mean(found != exact) <= 1e-2
    same(made, inputs, None)


def images(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(-1, 1)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(1, -1)


def pairs(padding: list[list[int]]) -> list[int]:
    return [n for pair in reversed(padding) for n in pair]


@pytest.mark.parametrize(
    ("held", "made", "wide"),
    [
        ("uint8", "uint8", "int16"),
        ("uint8", "uint16", "int8"),
        ("uint16", "uint8", "int8"),
        ("uint16", "uint16", "int16"),
    ],
)
def test_convolutions_of_other_widths(held: str, made: str, wide: str) -> None:
    """Weights or results of more bits than the operand, or of fewer."""
    w = weights((3, 2, 5, 6), wide, 0.01 if wide == "int8" else 0.01 / 256)
    x, y = tensor("x", (2, 9, 8, 5), held), tensor("y", (2, 4, 9, 6), made, 0.4)
    graph = whole("Conv2d", [x, w], y, **WINDOW, group=1)
    a = given(x, 0)
    filters = real(w, w.data).permute(3, 2, 0, 1)
    padded = functional.pad(images(real(x, a)), pairs(WINDOW["pad_amount"]))
    judged(graph, channels_last(functional.conv2d(padded, filters, None, (2, 1), 0, (1, 2))), [a])


@pytest.mark.parametrize("held", ["uint8", "uint16"])
@pytest.mark.parametrize("kind", ["Conv2d", "TransposeConv2d", "Conv3d", "TransposeConv3d"])
def test_groups_that_are_too_many_to_be_dense(kind: str, held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "_MAX_DENSE_WEIGHTS", 1)
    deep, transposed = kind.endswith("3d"), kind.startswith("Transpose")
    sizes = (4, 5, 6)[: 3 if deep else 2]
    ones = [1] * len(sizes)
    w = weights((*(2 for _ in sizes), 4 if transposed else 2, 6 if not transposed else 3))
    window = {"stride": [2] * len(sizes), "pad_amount": [[1, 0]] * len(sizes), "group": 2}
    window |= {"output_padding": [0] * len(sizes)} if transposed else {"dilation": ones}
    out = [2 * (n - 1) + 2 - 1 if transposed else (n + 1 - 2) // 2 + 1 for n in sizes]
    x, y = tensor("x", (2, *sizes, 4), held), tensor("y", (2, *out, 6), held, 0.1)
    graph, a = whole(kind, [x, w], y, **window), given(x, 0)
    image, filters = images(real(x, a)), real(w, w.data)
    rank = len(sizes)
    if transposed:
        grown = (functional.conv_transpose3d if deep else functional.conv_transpose2d)(
            image, filters.movedim((-2, -1), (0, 1)), None, 2, groups=2
        )
        wanted = grown[(..., *(slice(1, None) for _ in sizes))]
    else:
        padded = functional.pad(image, [1, 0] * rank)
        wanted = (functional.conv3d if deep else functional.conv2d)(
            padded, filters.movedim((-1, -2), (0, 1)), None, 2, groups=2
        )
    judged(graph, channels_last(wanted), [a])


def test_windows_of_many_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "_MAX_DEPTH", 2)
    w = weights((3, 2, 2, 4, 5))
    x, y = tensor("x", (2, 9, 4, 5, 4), "uint8"), tensor("y", (2, 4, 3, 4, 5), "uint8", 0.2)
    window = {"stride": [2, 1, 1], "pad_amount": [[1, 1], [0, 0], [0, 0]], "dilation": [2, 1, 1], "group": 1}
    graph, a = whole("Conv3d", [x, w], y, **window), given(x, 0)
    padded = functional.pad(images(real(x, a)), [0, 0, 0, 0, 1, 1])
    filters = real(w, w.data).permute(4, 3, 0, 1, 2)
    judged(graph, channels_last(functional.conv3d(padded, filters, None, (2, 1, 1), 0, (2, 1, 1))), [a])


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("held", ["uint8", "uint16"])
def test_padded_averages_of_volumes(held: str, counted: bool) -> None:
    x, y = tensor("x", (2, 5, 6, 7, 3), held), tensor("y", (2, 3, 3, 4, 3), held)
    window = {"filter_size": [3, 3, 3], "stride": [2, 2, 2], "pad_amount": [[1, 1]] * 3, "rounding_mode": 0}
    graph, a = whole("PoolAvg3d", [x], y, **window, count_pad_for_edges=counted), given(x, 0)
    wanted = functional.avg_pool3d(images(real(x, a)), 3, 2, 1, count_include_pad=counted)
    judged(graph, channels_last(wanted), [a])


@pytest.mark.parametrize("held", ["uint8", "uint16"])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums_before_each_element(held: str, reverse: bool) -> None:
    x, y = tensor("x", (3, 7, 4), held), tensor("y", (3, 7, 4), held, 0.1)
    graph, a = whole("CumulativeSum", [x], y, axis=1, exclusive=True, reverse=reverse), given(x, 0)
    numbers = real(x, a).flip(1) if reverse else real(x, a)
    sums = numbers.cumsum(1) - numbers
    judged(graph, sums.flip(1) if reverse else sums, [a])


def test_norms_of_rows_whose_squares_exceed_64_bits() -> None:
    x, y = tensor("x", (1, 200, 200, 2), "uint16"), tensor("y", (1, 200, 200, 2), "uint16", 0.05)
    graph = whole("InstanceNorm", [x], y, epsilon=1e-6, mode=0, normalize_variance=True, region=0)
    a = np.random.default_rng(0).choice(np.array([0, 1, 65535], np.uint16), x.bound, p=[0.5, 0.2, 0.3])
    a[..., 1] = np.random.default_rng(1).integers(0, 1 << 16, a.shape[:-1])
    wanted = functional.instance_norm(images(real(x, a)), eps=1e-6)
    judged(graph, channels_last(wanted), [a])


def test_windows_of_int32() -> None:
    x, y = plain("x", (2, 6, 5, 3), "int32"), plain("y", (2, 3, 6, 3), "int32")
    window = {"filter_size": [3, 2], "stride": [2, 1], "pad_amount": [[1, 0], [1, 1]], "rounding_mode": 0}
    graph, a = whole("PoolMax2d", [x], y, **window), given(x, 0)
    padded = functional.pad(images(torch.from_numpy(a).double()), [1, 1, 1, 0], value=-np.inf)
    wanted = channels_last(functional.max_pool2d(padded, (3, 2), (2, 1)))
    np.testing.assert_array_equal(DIALECT.execute(graph, [a])[0], wanted.numpy())
    same(graph, [a])


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_matrices_of_int32(transposed: tuple[bool, bool]) -> None:
    shapes = [(2, 3, 4) if transposed[0] else (2, 4, 3), (2, 5, 3) if transposed[1] else (2, 3, 5)]
    a, b = (plain(name, shape, "int32") for name, shape in zip("ab", shapes, strict=True))
    flags = {f"transpose_in{i}": t for i, t in enumerate(transposed)}
    graph = whole("MatMul", [a, b], plain("y", (2, 4, 5), "int32"), **flags)
    inputs = [np.random.default_rng(i).integers(-99, 99, v.bound).astype(np.int32) for i, v in enumerate((a, b))]
    left, right = (
        torch.from_numpy(m).mT if t else torch.from_numpy(m) for m, t in zip(inputs, transposed, strict=True)
    )
    np.testing.assert_array_equal(DIALECT.execute(graph, inputs)[0], (left @ right).numpy())
    same(graph, inputs, native=False)


@pytest.mark.parametrize("held", ["uint8", "uint16"])
def test_products_with_a_constant(held: str) -> None:
    a, b = tensor("a", (3, 4, 6), held), fixed("b", np.random.default_rng(0).uniform(-1, 1, (6, 5)), held)
    y = tensor("y", (3, 4, 5), held, 0.05)
    graph, x = whole("MatMul", [a, b], y, transpose_in0=False, transpose_in1=False), given(a, 0)
    judged(graph, real(a, x) @ real(b, np.asarray(b.data)), [x])


@pytest.mark.parametrize("signs", [(False, False), (True, False), (False, True), (True, True)])
def test_infinities_of_either_sign(signs: tuple[bool, bool]) -> None:
    x, y = plain("x", (4,), "float32"), plain("y", (4,), "bool")
    graph = whole("IsInf", [x], y, detect_negative=signs[0], detect_positive=signs[1])
    a = np.array([-np.inf, np.inf, np.nan, 70000.0], np.float32)  # which fp16 does not have
    np.testing.assert_array_equal(DIALECT.execute(graph, [a])[0], [signs[0], signs[1], False, signs[1]])
    same(graph, [a])


def test_the_largest_in_another_scale() -> None:
    x, y, at = tensor("x", (3, 20), "uint8"), tensor("y", (3, 11), "uint8", 0.05), plain("i", (3, 11), "int32")
    graph = Graph("g", [x], [y], [Op("qnn.TopK", {"inputs": [x], "k": 11, "largest": True}, [y, at])])
    DIALECT.check(graph, 1 << 20)
    a = np.random.default_rng(0).permuted(np.tile(np.arange(20, 220, 10, dtype=np.uint8), (3, 1)), axis=1)
    judged(graph, real(x, a).topk(11).values, [a])


def test_scalars_are_vectors_of_one_element() -> None:
    x, y = tensor("x", (), "uint8"), tensor("y", (1,), "uint8", 1 / 128)
    graph = whole("Softmax", [x], y, axis=0, beta=1.0)
    assert DIALECT.execute(graph, [np.asarray(7, np.uint8)])[0] == [255]
    same(graph, [np.asarray(7, np.uint8)])
