"""ENN's operators in the engine: integers bit for bit what their references say, real numbers within what half
precision does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgewright.backends.samsung import Precision
from edgewright.backends.samsung.dialect import DIALECT
from edgewright.backends.samsung.dialect.numerics import ENN_NUMERICS
from edgewright.backends.samsung.partitioner import to_enn
from edgewright.engine import compile
from edgewright.ir.graph import Array, Graph, Op, Value
from tests.backends.samsung.networks import device_graphs, mixed, quantized
from tests.backends.samsung.test_rows import PARTITIONER, ROWS, TYPES, samples
from tests.engine.graphs import cpus, dirty, random, real
from tests.engine.graphs import quantized as quantized_value

SHARE = 5e-3  # of the largest number of a result: what half precision may be off


def alike(made: Graph, given: Sequence[Array], cpu: str) -> list[str]:
    """Compares results; the operators that numpy did."""
    compiled = compile(made, threads=1, numerics=ENN_NUMERICS, cpu=cpu)
    dirty(compiled)
    for value, got, want in zip(made.outputs, compiled.run(given), DIALECT.execute(made, given), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        compare(value, got, want)
    return [s.label for s in compiled.plan.steps if s.python is not None]


def compare(value: Value, got: Array, want: Array) -> None:
    if value.q is not None or want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, value.name)
        return
    known = np.isfinite(want)  # the rest is beyond half precision, or nothing
    largest = max(float(np.abs(want[known]).max(initial=0)), 1e-3)
    assert np.abs(got[known].astype(np.float64) - want[known]).max(initial=0) <= SHARE * largest, value.name


def engine_runs(made: Graph) -> bool:
    return all(len(op.outputs) == 1 or op.kind == "enn.SPLIT" for op in made.ops) and all(
        0 not in v.bound for v in made.values()
    )


def run(op: str, cases: Sequence[Any], first: int) -> None:
    for at, case in enumerate(cases):
        made = to_enn(case.copy())
        if engine_runs(made):
            alike(made, case.inputs, cpus()[(first + at) % len(cpus())])


def accepted(op: str, dtype: Any) -> list[Any]:
    return [case for case in samples(op, dtype) if not PARTITIONER.rejections(case.op)]


@pytest.mark.sample(10)
@pytest.mark.parametrize("op", ROWS)
def test_samples_of_rows(op: str) -> None:
    """One of 8 bits and one of another type, each with one instruction set: others come with other operators."""
    first = ROWS.index(op)
    for dtype in (np.int8, TYPES[first % len(TYPES)]):
        taken = accepted(op, dtype)
        run(op, taken[first % len(taken) :][:1] if taken else [], first)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", ROWS)
def test_all_samples_of_rows(op: str, dtype: Any) -> None:
    run(op, accepted(op, dtype), ROWS.index(op))


def inside(made: Graph) -> Graph:
    """With every value as a result."""
    return Graph(made.name, made.inputs, [v for op in made.ops for v in op.outputs if v is not None], made.ops)


@pytest.mark.sample(2)
@pytest.mark.parametrize("precision", [None, *Precision])
def test_a_network_and_all_that_is_inside(precision: Any) -> None:
    """Every value of it, with each instruction set; nothing is left to numpy."""
    model, inputs = mixed()
    (made,) = device_graphs(model if precision is None else quantized(model, inputs, precision), inputs)
    given = [np.random.default_rng(0).normal(size=v.bound).astype(v.dtype) for v in made.inputs]
    for cpu in cpus():
        alike(inside(made), given, cpu)
        assert alike(made, given, cpu) == []


def no_numbers(kind: str, dtype: Any) -> tuple[Graph, list[Array]]:
    """An operator that makes some of nothing, twice a result: as it is, and read by another operator."""
    x, y, made, limited = (quantized_value(name, 3, 5, scale=1e-3, zero=100, dtype=dtype) for name in "xyml")
    given = [random(v, seed) for seed, v in enumerate((x, y))]
    for array in given:
        array[:, :2] = 100, 3  # 0, and less
    inputs, args = [x, y], {}
    if kind == "QUANTIZE":
        inputs, args = [real("x", 3, 5)], {"scales": [1e-3], "zero_points": [100]}
        given = [np.resize(np.array([np.nan, 0.01, np.inf, -np.inf], np.float32), (3, 5))]
    elif kind in ("SQRT", "RSQRT", "LOG"):
        inputs, given = inputs[:1], given[:1]
    first = Op(f"enn.{kind}", {"inputs": inputs, **args}, [made])
    then = Op("enn.CLIP", {"inputs": [made], "minimum": -0.05, "maximum": 0.1}, [limited])
    return Graph(kind, inputs, [made, limited], [first, then]), given


@pytest.mark.sample(7)
@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("kind", ["ELTDIV", "SQRT", "RSQRT", "LOG", "QUANTIZE"])
def test_no_number_is_stored_as_0(kind: str, dtype: Any) -> None:
    """Of the type that the graph has, whatever type the engine computes with."""
    made, given = no_numbers(kind, dtype)
    DIALECT.check(made, 1 << 20)
    wanted = DIALECT.execute(made, given)[0]
    place = (0, 0) if kind in ("ELTDIV", "QUANTIZE") else (0, 1)
    assert wanted[place] == 0
    for cpu in cpus():
        alike(made, given, cpu)
