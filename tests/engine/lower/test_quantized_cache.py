"""Rows quantized to int8, and attention over caches of them, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.engine.compiler import compile
from edgewright.ir.core.quantized_cache import quantize_rows, row_parameters
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import compare, cpus, graph, real, steps_in_python

INT8, POSITION = np.dtype(np.int8), np.dtype(np.int64)
EXACT = 5e-6  # of the largest result: rounding of float32
ROUNDED = 6e-5  # for a single position: weights are rounded to 16 bits


def int8(name: str, *shape: int) -> Value:
    return Value(name, INT8, shape, tuple(range(len(shape))))


def attention(
    count: int, length: int, groups: int, shared: int, width: int, *, mask: bool = False, causal: bool = True,
    batch: int = 1,
) -> Graph:  # fmt: skip
    out = real("out", batch, count, groups * shared, width)
    args: dict[str, Any] = {}
    for name, rows, heads in (("query", count, groups * shared), ("key", length, groups), ("value", length, groups)):
        args[name] = int8(name, batch, rows, heads, width)
        args[f"{name}_scale"] = real(f"{name}_scale", batch, rows, heads, 1)
        args[f"{name}_zero_point"] = int8(f"{name}_zero_point", batch, rows, heads, 1)
    args["position"] = Value("position", POSITION, (1,), (0,))
    if mask:
        args["mask"] = real("mask", count, length)
    op = Op("core.quantized_cached_attention", {**args, "scale": 0.2, "causal": causal}, [out])
    return graph(list(args.values()), [out], op)


def inputs(made: Graph, start: int) -> list[Any]:
    """Rows of floats, quantized, so that scales and zero points are what they would be."""
    rng, arrays = np.random.default_rng(3), []
    for value in made.inputs:
        if value.dtype == POSITION:
            arrays.append(np.array([start]))
        elif value.dtype == INT8 and value.bound[-1] > 1:
            rows = rng.standard_normal(value.bound, np.float32) * rng.uniform(0.1, 3, (*value.bound[:-1], 1))
            rows = (rows + rng.uniform(-1, 1, (*value.bound[:-1], 1))).astype(np.float32)
            scale, zero = row_parameters(rows)
            arrays += [quantize_rows(rows, scale, zero), scale.astype(np.float32), zero.astype(np.int8)]
        elif value.name == "mask":
            arrays.append(rng.standard_normal(value.bound, np.float32))
    return arrays


SHAPES = [(1, 64, 3, 3, 64, 0), (1, 320, 2, 7, 64, 255), (1, 300, 2, 2, 64, 299), (1, 128, 1, 1, 80, 127),
          (1, 192, 9, 2, 32, 100), (1, 128, 2, 4, 256, 90), (1, 64, 2, 2, 8, 40), (5, 70, 2, 4, 32, 65),
          (33, 256, 3, 3, 64, 64), (17, 17, 1, 5, 128, 0), (2, 192, 4, 1, 8, 100)]  # fmt: skip


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("count", "length", "groups", "shared", "width", "start"), SHAPES)
def test_attention_over_a_cache(
    count: int, length: int, groups: int, shared: int, width: int, start: int, cpu: str
) -> None:
    for causal in (True, False):
        made = attention(count, length, groups, shared, width, causal=causal)
        assert steps_in_python(made, cpu) == []
        compare(made, inputs(made, start), cpu, ROUNDED if count == 1 else EXACT)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("count", "length"), [(1, 128), (20, 128), (1, 101), (20, 96)])
def test_attention_with_a_mask(count: int, length: int, cpu: str) -> None:
    made = attention(count, length, 2, 3, 16, mask=True, causal=False)
    assert steps_in_python(made, cpu) == []
    arrays = inputs(made, 0)
    arrays[-1][:, :70] = -np.inf  # blocks without a visible key
    compare(made, arrays, cpu, ROUNDED if count == 1 else EXACT)


@pytest.mark.parametrize("count", [1, 6])
def test_batches_have_caches_of_their_own(count: int) -> None:
    made = attention(count, 128, 3, 2, 64, batch=2)
    compare(made, inputs(made, 50), cpus()[-1], ROUNDED if count == 1 else EXACT)


@pytest.mark.parametrize("count", [1, 9])
def test_only_keys_that_count_are_read(count: int) -> None:
    made = attention(count, 256, 2, 2, 32)
    arrays = inputs(made, 100 - count)
    (expected,) = compile(made, threads=1).run(arrays)
    for array in arrays[3:9]:
        array[:, 100:] = np.nan if array.dtype.kind == "f" else 99
    np.testing.assert_array_equal(compile(made, threads=1).run(arrays)[0], expected)


def test_threads_do_not_change_the_result() -> None:
    for count in (1, 40):
        made = attention(count, 512, 3, 3, 64)
        arrays = inputs(made, 400)
        one, two = (compile(made, threads=n).run(arrays)[0] for n in (1, 2))
        np.testing.assert_array_equal(one, two)


def rows_of_all_kinds(width: int) -> Any:
    """Rows of many ranges: large, small, on one side of 0, empty, subnormal, with NaN and infinity."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((1, 60, 2, width), np.float32)
    rows *= np.float32(10.0) ** rng.integers(-8, 8, (1, 60, 2, 1)).astype(np.float32)
    rows[0, 0], rows[0, 1], rows[0, 2], rows[0, 3, 0] = 0, np.abs(rows[0, 1]), -np.abs(rows[0, 2]), 1e-42
    rows[0, 4, 0, 3], rows[0, 5, 0, 1], rows[0, 6, 1, 2] = np.nan, np.inf, -np.inf
    rows[0, 7], rows[0, 8], rows[0, 9] = np.abs(rows[0, 7]) * 1e-12, -np.abs(rows[0, 8]) * 1e-12, np.nan
    return rows


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("kind", ["row_scale", "row_zero_point", "quantize_rows"])
@pytest.mark.parametrize("width", [1, 5, 8, 64, 80])
def test_rows_are_quantized_bit_for_bit(kind: str, width: int, cpu: str) -> None:
    x = real("x", 1, 60, 2, width)
    shape = x.bound if kind == "quantize_rows" else (*x.bound[:-1], 1)
    out = real("out", *shape) if kind == "row_scale" else int8("out", *shape)
    made = graph([x], [out], Op(f"core.{kind}", {"self": x}, [out]))
    assert steps_in_python(made, cpu) == []
    compare(made, [rows_of_all_kinds(max(width, 4))[..., :width]], cpu, 0)


@pytest.mark.parametrize(
    ("name", "count"), [("value_scale", 1), ("value_scale", 5), ("key_scale", 1), ("query_scale", 1)]
)
def test_a_scale_that_is_not_a_number_reaches_the_result(name: str, count: int) -> None:
    made = attention(count, 64, 1, 1, 64)
    arrays = inputs(made, 20)
    arrays[[v.name for v in made.inputs].index(name)][0, 0] = np.nan
    (result,) = compile(made, threads=1).run(arrays)
    assert np.isnan(result[0, 0]).all()
