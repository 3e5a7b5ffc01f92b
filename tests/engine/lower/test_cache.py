"""Slices and updates at a run-time position, and attention over caches, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.engine import make_plan
from edgewright.engine.compiler import compile
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import compare, cpus, graph, random, real, steps_in_python

POSITION = np.dtype(np.int64)


def position() -> Value:
    return Value("position", POSITION, (1,), (0,))


def attention(
    count: int, length: int, groups: int, shared: int, width: int, *, mask: bool = False, causal: bool = True
) -> Graph:
    query, out = real("q", 1, count, groups * shared, width), real("o", 1, count, groups * shared, width)
    args: dict[str, Any] = {"query": query, "key": real("k", 1, length, groups, width),
                            "value": real("v", 1, length, groups, width), "position": position()}  # fmt: skip
    if mask:
        args["mask"] = real("m", count, length)
    op = Op("core.cached_attention", {**args, "scale": 0.2, "causal": causal}, [out])
    return graph(list(args.values()), [out], op)


def inputs(made: Graph, start: int) -> list[Any]:
    return [np.array([start]) if v.dtype == POSITION else random(v, i) for i, v in enumerate(made.inputs)]


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(
    ("count", "length", "groups", "shared", "width", "start"),
    [(1, 64, 3, 3, 64, 0), (1, 300, 2, 7, 64, 255), (1, 128, 1, 1, 80, 127), (5, 70, 2, 4, 32, 65),
     (33, 256, 3, 3, 64, 64), (17, 17, 1, 5, 128, 0), (2, 192, 4, 1, 8, 100)],
)  # fmt: skip
def test_attention_over_a_cache(
    count: int, length: int, groups: int, shared: int, width: int, start: int, cpu: str
) -> None:
    for causal in (True, False):
        made = attention(count, length, groups, shared, width, causal=causal)
        assert steps_in_python(made, cpu) == []
        compare(made, inputs(made, start), cpu, 3e-6)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("count", "length"), [(1, 128), (20, 128), (1, 101), (20, 96)])
def test_attention_with_a_mask(count: int, length: int, cpu: str) -> None:
    made = attention(count, length, 2, 3, 16, mask=True, causal=False)
    assert steps_in_python(made, cpu) == []
    arrays = inputs(made, 0)
    arrays[4] = np.where(np.arange(length) < 70, -np.inf, arrays[4]).astype(np.float32)  # blocks without a visible key
    compare(made, arrays, cpu, 3e-6)


def test_a_row_without_a_visible_key_is_not_a_number() -> None:
    made = attention(2, 64, 1, 1, 16, mask=True, causal=False)
    arrays = inputs(made, 0)
    arrays[4][1] = -np.inf
    (result,) = compile(made, threads=1).run(arrays)
    assert np.isfinite(result[0, 0]).all()
    assert np.isnan(result[0, 1]).all()


def test_only_keys_that_count_are_read() -> None:
    made = attention(1, 256, 1, 2, 32)
    arrays = inputs(made, 99)
    (expected,) = compile(made, threads=1).run(arrays)
    arrays[1][:, 100:], arrays[2][:, 100:] = np.nan, np.nan
    np.testing.assert_array_equal(compile(made, threads=1).run(arrays)[0], expected)


def test_threads_do_not_change_the_result() -> None:
    for count in (1, 40):
        made = attention(count, 512, 3, 3, 64)
        arrays = inputs(made, 400)
        one, two = (compile(made, threads=n).run(arrays)[0] for n in (1, 2))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("start", [-5, 0, 3, 6, 100])
def test_positions_are_clamped(start: int) -> None:
    table, rows = real("t", 9, 5), real("r", 3, 5)
    op = Op("core.dynamic_slice", {"self": table, "position": position(), "length": 3}, [rows])
    made = graph([table, op.args["position"]], [rows], op)
    compare(made, inputs(made, start), cpus()[-1], 0)
    cache, values, out = real("c", 2, 9, 5), real("n", 2, 3, 5), real("o", 2, 9, 5)
    op = Op("core.dynamic_update_slice", {"self": cache, "values": values, "position": position()}, [out])
    made = graph([cache, values, op.args["position"]], [out], op)
    compare(made, inputs(made, start), cpus()[-1], 0)


def test_a_cache_is_updated_in_place() -> None:
    cache, values, updated = real("c", 1, 64, 2, 16), real("n", 1, 1, 2, 16), real("u", 1, 64, 2, 16)
    query, out, at = real("q", 1, 1, 4, 16), real("o", 1, 1, 4, 16), position()
    made = graph(
        [cache, values, query, at], [updated, out],
        Op("core.dynamic_update_slice", {"self": cache, "values": values, "position": at}, [updated]),
        Op("core.cached_attention", {"query": query, "key": updated, "value": updated, "position": at, "scale": 0.3,
                                     "causal": True}, [out]),
    )  # fmt: skip
    assert make_plan(made, threads=1).updates == ((0, 0),)
    arrays = inputs(made, 7)
    before, results = arrays[0].copy(), [arrays[0], np.empty(out.bound, np.float32)]
    compile(made, threads=1).run(arrays, results)
    before[:, 7] = arrays[1][:, 0]
    np.testing.assert_array_equal(arrays[0], before)
    compare(made, inputs(made, 7), cpus()[-1], 3e-6)
