"""Pools and reductions on the simulated NPU and in the TOSA reference model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tosa_serializer as ts

from tests.backends.ethos_u.tosa_graphs import SIMULATED, Graph, assert_equal

AVERAGE, MAX = "AVG_POOL2D", "MAX_POOL2D"


def pooled(kind: str, kernel: Any, *, shape: Any = (1, 12, 12, 20), dtype: str = "i8", **options: Any) -> Graph:
    graph = Graph()
    return graph.output(graph.pool(graph.input(shape, dtype), kind, kernel, **options))


def reduced(kind: str, axis: int, *, shape: Any = (1, 6, 7, 20), dtype: str = "i8") -> Graph:
    graph = Graph()
    return graph.output(graph.reduce(kind, graph.input(shape, dtype), axis))


def summed(axis: int, *, shape: Any = (1, 6, 7, 20), dtype: str = "i8") -> Graph:
    """The sum of a quantized tensor, in 32 bits and back."""
    graph, zero = Graph(), 0 if dtype == "i16" else 11
    wide = graph.rescale(graph.input(shape, dtype), 1, zero=(zero, 0), to="i32")
    total = graph.reduce("REDUCE_SUM", wide, axis)
    return graph.output(graph.rescale(total, 0.31, zero=(0, zero), to=dtype))


def argmax(axis: int, *, shape: Any = (1, 5, 6, 17), dtype: str = "i8") -> Graph:
    graph = Graph()
    result = [n for i, n in enumerate(shape) if i != axis]
    x = graph.input(shape, dtype)
    return graph.output(graph.op("ARGMAX", [x], result, "i32", axis, ts.NanPropagationMode.PROPAGATE))


def product(a: Any, b: Any, *, dtype: str = "i8", zero: tuple[int, int] = (3, -4)) -> Graph:
    graph = Graph()
    zero = (0, 0) if dtype == "i16" else zero
    result = graph.matmul(graph.input(a, dtype), graph.input(b, dtype), zero)
    scale = 0.005 if dtype == "i8" else 1e-5
    return graph.output(graph.rescale(result, scale, to=dtype, scale32=dtype == "i8"))


CASES: dict[str, Callable[[], Graph]] = {
    "average": partial(pooled, AVERAGE, (3, 3), zero=(4, 4)),
    "average, stride 2": partial(pooled, AVERAGE, (2, 2), stride=(2, 2)),
    "average, stride 3": partial(pooled, AVERAGE, (3, 3), stride=(3, 3)),
    "average of all": partial(pooled, AVERAGE, (12, 12), zero=(-128, -128)),
    "average of 7x7": partial(pooled, AVERAGE, (7, 7), shape=(1, 7, 7, 40)),
    "average, padded": partial(pooled, AVERAGE, (3, 3), pad=(1, 1, 1, 1), zero=(9, 9)),
    "average, padded, stride 2": partial(pooled, AVERAGE, (3, 3), pad=(1, 0, 0, 1), stride=(2, 2)),
    "average, padded 2x2": partial(pooled, AVERAGE, (2, 2), pad=(0, 1, 0, 1)),
    "average, padded 5x5": partial(pooled, AVERAGE, (5, 5), pad=(2, 2, 2, 2), zero=(-3, -3)),
    "average, padded 8x8": partial(pooled, AVERAGE, (8, 8), pad=(3, 3, 4, 4), shape=(1, 9, 9, 64)),
    "average, padded 4x3": partial(pooled, AVERAGE, (4, 3), pad=(2, 1, 1, 1), shape=(1, 9, 9, 64), zero=(127, 127)),
    "average int16": partial(pooled, AVERAGE, (3, 3), dtype="i16"),
    "average int16, padded": partial(pooled, AVERAGE, (3, 3), dtype="i16", pad=(1, 1, 1, 1), shape=(1, 20, 20, 16)),
    "average int16, padded 5x5": partial(pooled, AVERAGE, (5, 5), dtype="i16", pad=(2, 2, 2, 2)),
    "max": partial(pooled, MAX, (3, 3)),
    "max, stride 2": partial(pooled, MAX, (2, 2), stride=(2, 2)),
    "max, padded": partial(pooled, MAX, (3, 3), stride=(2, 2), pad=(1, 0, 1, 0)),
    "max, 2x3": partial(pooled, MAX, (2, 3), stride=(1, 3), shape=(1, 7, 9, 33)),
    "max int16": partial(pooled, MAX, (3, 3), dtype="i16", pad=(1, 1, 1, 1)),
    **{f"sum over axis {axis}": partial(summed, axis) for axis in (1, 2, 3)},
    **{f"sum int16 over axis {axis}": partial(summed, axis, dtype="i16") for axis in (1, 2, 3)},
    "sum of many": partial(summed, 3, shape=(1, 2, 2, 300)),
    **{f"{kind} over axis {axis}": partial(reduced, kind, axis)
       for kind in ("REDUCE_MAX", "REDUCE_MIN") for axis in (1, 2, 3)},
    **{f"{kind} int16 over axis {axis}": partial(reduced, kind, axis, dtype="i16")
       for kind in ("REDUCE_MAX", "REDUCE_MIN") for axis in (1, 2, 3)},
    "argmax": partial(argmax, 3),
    "argmax of 100": partial(argmax, 3, shape=(1, 5, 6, 100)),
    "matmul": partial(product, (1, 7, 20), (1, 20, 9)),
    "matmul of a batch": partial(product, (3, 5, 33), (3, 33, 8)),
}  # fmt: skip


@pytest.mark.sample(74)
@pytest.mark.parametrize("accelerator", SIMULATED)
@pytest.mark.parametrize("case", CASES)
def test_pool(case: str, accelerator: str) -> None:
    assert_equal(CASES[case](), accelerator)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_sum_of_int32(axis: int) -> None:
    graph = reduced("REDUCE_SUM", axis, dtype="i32")
    values = np.random.default_rng(axis).integers(-(1 << 24), 1 << 24, (1, 6, 7, 20)).astype(np.int32)
    assert_equal(graph, "ethos-u55-128", inputs=[values])
