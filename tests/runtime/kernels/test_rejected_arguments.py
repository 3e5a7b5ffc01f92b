"""Arguments no tensor can satisfy are refused before anything is computed, and emptiness costs nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import edgewright.runtime.stock_kernels  # noqa: F401  (fills the registry)
from edgewright.ir.aten.reference import movement
from edgewright.runtime.registry import KERNELS

M = np.arange(12, dtype=np.float32).reshape(3, 4)
BOX = np.zeros((2, 4, 4), np.float32)
POINT = np.zeros((), np.float32)
HUGE = 2**62
NONE = np.zeros((0, 1 << 20, 1 << 20), np.float32)

REFUSED: list[tuple[str, list[Any]]] = [
    ("aten::sum.IntList_out", [M, [2], False, None]),
    ("aten::sum.IntList_out", [M, [0, -2], False, None]),
    ("aten::amax.out", [M[:0], [0], False]),
    ("aten::max.unary_out", [M[:0]]),
    ("aten::argmax.out", [M[:0], None, False]),
    ("aten::min.dim_min", [M, -3, False]),
    ("aten::cumsum.out", [M, HUGE, None]),
    ("aten::topk.values", [M, 5, 1, True, True]),
    ("aten::topk.values", [M, -1, 1, True, True]),
    ("aten::_softmax.out", [M, 2, False]),
    ("aten::native_layer_norm.out", [M, [3], None, None, 1e-5]),
    ("aten::native_layer_norm.out", [M, [], None, None, 1e-5]),
    ("aten::native_layer_norm.out", [M, [4], M, None, 1e-5]),
    ("aten::native_group_norm.out", [BOX, None, None, 2, 4, 4, 3, 1e-5]),
    ("aten::native_group_norm.out", [BOX, None, None, 2, 4, 4, 0, 1e-5]),
    ("aten::native_group_norm.out", [BOX, None, None, -2, -4, 4, 1, 1e-5]),
    ("aten::_native_batch_norm_legit_no_training.out", [M, None, None, M[0], M[:, 0], 0.1, 1e-5]),
    ("aten::_native_batch_norm_legit.no_stats_out", [M, None, None, False, 0.1, 1e-5]),
    ("aten::_native_batch_norm_legit.no_stats_out", [M[:0], None, None, True, 0.1, 1e-5]),
    ("aten::_cdist_forward.out", [M, M.T, 2.0, None]),
    ("aten::_cdist_forward.out", [M, M, float("nan"), None]),
    ("aten::_pdist_forward.out", [M, -1.0]),
    ("aten::view_copy.out", [M, [5, -1]]),
    ("aten::view_copy.out", [M, [-1, -1]]),
    ("aten::view_copy.out", [M, [-3, -4]]),
    ("aten::view_copy.out", [M[:0], [0, -1]]),
    ("aten::permute_copy.out", [M, [0, 0]]),
    ("aten::permute_copy.out", [M, [0]]),
    ("aten::t_copy.out", [BOX]),
    ("aten::flip.out", [M, [0, -2]]),
    ("aten::roll.out", [M, [1, 2], [0]]),
    ("aten::roll.out", [POINT, [1], [0]]),
    ("aten::unsqueeze_copy.out", [M, 3]),
    ("aten::expand_copy.out", [M, [-1, 3, 4], False]),
    ("aten::expand_copy.out", [M, [6, 4], False]),
    ("aten::expand_copy.out", [M, [4], False]),
    ("aten::expand_copy.out", [POINT, [-2], False]),
    ("aten::repeat.out", [M, [2]]),
    ("aten::repeat.out", [M, [2, -1]]),
    ("aten::slice_copy.Tensor_out", [M, 0, 0, 2, 0]),
    ("aten::slice_copy.Tensor_out", [M, 0, 0, 2, -1]),
    ("aten::slice_copy.Tensor_out", [POINT, 0, 0, 1, 1]),
    ("aten::narrow_copy.out", [M, 0, 2, 2]),
    ("aten::narrow_copy.out", [M, 0, -4, 1]),
    ("aten::narrow_copy.out", [M, 0, 0, -1]),
    ("aten::select_copy.int_out", [M, 0, 3]),
    ("aten::diagonal_copy.out", [M, 0, 1, -1]),
    ("aten::tril.out", [M[0], 0]),
    ("aten::cat.out", [[], 0]),
    ("aten::cat.out", [[M, M.T], 0]),
    ("aten::cat.out", [[POINT, POINT], 0]),
    ("aten::stack.out", [[], 0]),
    ("aten::stack.out", [[M, M.T], 0]),
    ("aten::split_copy.Tensor_out", [M, 0, 0]),
    ("aten::split_copy.Tensor_out", [M, -1, 0]),
    ("aten::split_copy.Tensor_out", [NONE, 1, 1]),
    ("aten::split_with_sizes_copy.out", [M, [1, 1], 0]),
    ("aten::split_with_sizes_copy.out", [M, [4, -1], 0]),
    ("aten::unbind_copy.int_out", [NONE, 1]),
    ("aten::as_strided_copy.out", [M, [13], [1], None]),
    ("aten::as_strided_copy.out", [M, [3, 4], [4, 1], 1]),
    ("aten::as_strided_copy.out", [M, [2, 2], [HUGE, 2 * HUGE], 0]),
    ("aten::as_strided_copy.out", [M, [2], [-1], 5]),
    ("aten::as_strided_copy.out", [M, [1], [1], -1]),
    ("aten::as_strided_copy.out", [M, [2, 2], [1], 0]),
    ("aten::unfold_copy.out", [M, 1, 5, 1]),
    ("aten::unfold_copy.out", [M, 1, 2, 0]),
    ("aten::pixel_shuffle.out", [BOX, 2]),
    ("aten::pixel_shuffle.out", [BOX, 0]),
    ("aten::pixel_unshuffle.out", [BOX, 3]),
    ("aten::constant_pad_nd.out", [M, [1], 0]),
    ("aten::constant_pad_nd.out", [M, [0, 0, 0, 0, 1, 1], 0]),
    ("aten::constant_pad_nd.out", [M, [-5, 5], 0]),
    ("aten::reflection_pad1d.out", [M, [4, 0]]),
    ("aten::reflection_pad1d.out", [M, [-2, -2]]),
    ("aten::reflection_pad2d.out", [M, [1, 1, 1, 1]]),
    ("aten::replication_pad1d.out", [M[:, :0], [1, 1]]),
    ("aten::replication_pad3d.out", [NONE, [HUGE] * 6]),
]

EMPTY: list[tuple[str, list[Any]]] = [
    ("aten::_softmax.out", [NONE, 0, False]),
    ("aten::_log_softmax.out", [NONE, 0, False]),
    ("aten::max.dim_max", [NONE, 1, False]),
    ("aten::topk.values", [NONE, 3, 2, True, True]),
    ("aten::argmin.out", [NONE, 1, True]),
    ("aten::tril.out", [NONE, 0]),
    ("aten::repeat.out", [M, [1 << 40, 0]]),
    ("aten::unfold_copy.out", [NONE, 1, 1 << 19, 1]),
    ("aten::replication_pad2d.out", [NONE[:, None, :8, :8], [1 << 20] * 4]),
    ("aten::as_strided_copy.out", [M, [0, 1 << 40], [1, 1], HUGE]),
]


@pytest.mark.parametrize(("key", "args"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_impossible_arguments_are_refused_by_the_shape(key: str, args: list[Any]) -> None:
    shape = KERNELS[key].shape
    assert shape is not None
    with pytest.raises((ValueError, IndexError), match=r"\w"):
        shape(*args)


@pytest.mark.parametrize(("key", "args"), EMPTY, ids=lambda v: v if isinstance(v, str) else "")
def test_an_empty_result_takes_no_memory_whatever_its_sizes(key: str, args: list[Any]) -> None:
    kernel = KERNELS[key]
    assert kernel.shape is not None
    shapes = kernel.shape(*args)
    tracemalloc.start()
    try:
        results = kernel.fn(*args)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    results = list(results) if isinstance(results, tuple) else [results]
    assert [r.shape for r in results] == (shapes if isinstance(shapes, list) else [shapes])


def test_what_can_be_a_view_is_one() -> None:
    seen = [
        movement.view(M, [2, 6]), movement.permute(M, [1, 0]), movement.expand(M, [5, 3, 4]),
        movement.slice_(M, 0, 1, 3), movement.narrow(M, 1, 1, 2), movement.select(M, 0, 1), movement.flip(M, [0]),
        movement.diagonal(M), movement.squeeze(M, [0]), movement.unfold(M, 1, 2, 1), *movement.split(M, 2),
        movement.as_strided(M, [3], [2], 1), *movement.unbind(M),
    ]  # fmt: skip
    assert all(np.shares_memory(view, M) for view in seen)
