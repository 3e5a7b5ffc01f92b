"""Rows at places known when the graph runs: the reference's, and never anything outside the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.engine import compile
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import compare, constant, cpus, dirty, graph, random, real

I64 = np.dtype(np.int64)


def places(*shape: int, dtype: Any = np.int64) -> Value:
    return Value("at", np.dtype(dtype), shape, tuple(range(len(shape))))


def gather(shape: tuple[int, ...], dim: int, index: Value) -> Graph:
    x = real("x", *shape)
    y = real("y", *shape[:dim], *index.bound, *shape[dim + 1 :])
    return graph([x, index], [y], Op("core.index", {"self": x, "indices": [*[None] * dim, index]}, [y]))


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("shape", "dim"), [((7, 5), 0), ((3, 7, 40), 1), ((2, 3, 7), 2), ((7,), 0)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_reading(cpu: str, shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    made = gather(shape, dim, places(4, dtype=dtype))
    compare(made, [random(made.inputs[0]), np.array([6, 0, -1, -7], dtype)], cpu, 0)


@pytest.mark.parametrize("cpu", cpus())
def test_embedding(cpu: str) -> None:
    at, y = places(2, 3), real("y", 2, 3, 20)
    table = constant(np.random.default_rng(0).standard_normal((9, 20)).astype(np.float32))
    args = {"weight": table, "indices": at}
    compare(graph([at], [y], Op("core.embedding", args, [y])), [np.array([[0, 8, 3], [3, 3, 1]])], cpu, 0)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("shape", "dim"), [((6, 5), 0), ((2, 3, 6, 16), 2)])
def test_writing(cpu: str, shape: tuple[int, ...], dim: int) -> None:
    """To a cache: everything else stays."""
    x, at, y = real("x", *shape), places(2), real("y", *shape)
    values = real("v", *shape[:dim], 2, *shape[dim + 1 :])
    args = {"self": x, "indices": [*[None] * dim, at], "values": values, "accumulate": False}
    made = graph([x, at, values], [y], Op("core.index_put", args, [y]))
    compare(made, [random(x), np.array([4, -6]), random(values, 3)], cpu, 0)


@pytest.mark.parametrize("wrong", [7, -8, 2**62, -(2**63)])
def test_nothing_outside_is_read(wrong: int) -> None:
    compiled = compile(gather((7, 5), 0, places(1)), threads=1)
    dirty(compiled)
    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    assert compiled.run([x, np.array([wrong])])[0].tolist() in (x[:1].tolist(), x[6:].tolist())
