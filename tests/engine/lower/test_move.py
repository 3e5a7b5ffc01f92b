"""Moves of the op table, and places of the largest and smallest elements, of any type: as numpy has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine.jit.shape_specialization import Specializer
from edgewright.engine.lower.gather import GATHER_OPS, separable_indices
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import cpus, graph, run, steps_in_python

SHAPE = (2, 12, 5, 7)
CASES: dict[str, list[dict[str, Any]]] = {
    "flip": [{"dims": [3]}, {"dims": [1]}, {"dims": [0, 2]}],
    "roll": [{"shifts": [2], "dims": [3]}, {"shifts": [-5, 1], "dims": [1, 2]}, {"shifts": [4], "dims": [1]}],
    "repeat": [{"repeats": [1, 1, 1, 3]}, {"repeats": [2, 2, 1, 1]}, {"repeats": [2, 1, 1, 2, 1]}],
    "as_strided": [{"size": [3, 4], "stride": [11, 2], "storage_offset": 5}, {"size": [2, 3], "stride": [0, 1]}],
    "unfold": [{"dimension": 3, "size": 3, "step": 2}, {"dimension": 1, "size": 4, "step": 1}],
    "diagonal": [{}, {"offset": 1, "dim1": 2, "dim2": 3}, {"offset": -3, "dim1": 1, "dim2": 3}],
    "reflection_pad": [{"padding": [2, 3, 1, 4]}, {"padding": [0, 6, 0, 0]}],
    "replication_pad": [{"padding": [2, 3, 0, 1]}, {"padding": [5, 0, 0, 0]}],
    "pixel_shuffle": [{"upscale_factor": 2}],
    "pixel_unshuffle": [{"downscale_factor": 1}],
    "channel_shuffle": [{"groups": 4}],
    "upsample_nearest2d": [{"output_size": [8, 3], "scale_factors": None}],
    "resize_nearest2d": [{"output_size": [10, 21]}],
}


def contents(dtype: str, shape: tuple[int, ...] = SHAPE, few: int = 251) -> Any:
    return (np.random.default_rng(3).permutation(int(np.prod(shape))).reshape(shape) % few).astype(dtype)


def made(kind: str, args: dict[str, Any], given: Any) -> tuple[Graph, Any]:
    """A graph of one operator, and what the op table says it makes."""
    x = Value("x", given.dtype, given.shape, tuple(range(given.ndim)))
    name = "input" if kind == "upsample_nearest2d" else "self"
    want = np.asarray(OPS[kind].call({name: given, **args})[0])
    y = Value("y", want.dtype, want.shape, tuple(range(want.ndim)))
    return graph([x], [y], Op(f"core.{kind}", {name: x, **args}, [y])), want


def test_all_moves_are_tried() -> None:
    assert {f"core.{kind}" for kind in CASES} == GATHER_OPS


@pytest.mark.sample(18)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "int8"])
@pytest.mark.parametrize("kind", CASES)
def test_moves(cpu: str, dtype: str, kind: str) -> None:
    given = contents(dtype)
    for args in CASES[kind]:
        case, want = made(kind, args, given)
        assert steps_in_python(case, cpu) == []
        np.testing.assert_array_equal(run(case, [given], cpu)[0], want)


@pytest.mark.parametrize("kind", ["flip", "repeat", "reflection_pad"])
def test_other_sizes_need_no_other_code(kind: str) -> None:
    forms = Specializer(1, XNNPACK, 1 << 30)
    for shape in ((2, 3, 5, 8), (1, 5, 6, 8), (3, 1, 9, 8)):
        given = contents("float32", shape)
        case, want = made(kind, CASES[kind][0], given)
        np.testing.assert_array_equal(forms.make(case).run([given])[0], want)
    assert forms.compilations == 1


def test_places_that_are_no_sums_have_no_lists() -> None:
    assert separable_indices(np.array([[0, 1], [2, 4]])) is None


@pytest.mark.sample(5)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "int16", "int8", "uint8", "bool"])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_where_the_best_is(cpu: str, dtype: str, kind: str) -> None:
    """Few different numbers: of several the first counts. What is no number is the best."""
    given = contents(dtype, few=9)
    if dtype == "float32":
        given[1, 3, 2:4], given[0, 0] = np.nan, -np.inf
        given[1, :, 0, 0] = [-0.0, 0.0] * 6
    for dim, keepdim in ((0, False), (1, True), (2, False), (3, True), (-1, False)):
        case, want = made(kind, {"dim": dim, "keepdim": keepdim}, given)
        assert steps_in_python(case, cpu) == []
        np.testing.assert_array_equal(run(case, [given], cpu)[0], want)


@pytest.mark.parametrize("cpu", cpus())
def test_the_best_of_a_single_row_and_of_long_ones(cpu: str) -> None:
    for shape, dim in (((9001,), None), ((3, 9001), 0), ((1, 1), 1)):
        given = contents("int32", shape, 9000)
        case, want = made("argmax", {"dim": dim, "keepdim": False}, given)
        assert steps_in_python(case, cpu) == []
        np.testing.assert_array_equal(run(case, [given], cpu)[0], want)
