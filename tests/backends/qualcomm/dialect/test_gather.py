"""Places for the HTP that only the run knows: rows and elements read and written there, and what is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.engine import compile
from edgewright.errors import ExecutionError
from edgewright.ir.graph import Graph
from tests.engine.graphs import cpus
from tests.engine.qnn import TYPES, given, plain, same, tensor, whole

RNG = np.random.default_rng(4)
ODD = (-1, 6, -7, 2**31 - 1, -(2**31))  # of a dimension of 6


def places(shape: tuple[int, ...], *sizes: int, odd: bool = False) -> Any:
    """Any that are there, one list for each dimension, last; ``odd``: and some that are not."""
    listed = np.stack([RNG.integers(0, n, shape) for n in sizes], -1).astype(np.int32)
    if odd:
        listed.reshape(-1)[: len(ODD)] = ODD
    return listed if len(sizes) > 1 else listed[..., 0]


@pytest.mark.sample(4)
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("held", TYPES)
@pytest.mark.parametrize(("named", "rows"), [(1, (9,)), (2, (7,)), (2, (2, 4)), (3, (11,))])
def test_rows_written_at_several_dimensions(held: str, named: int, rows: tuple[int, ...], odd: bool) -> None:
    shape = (6, 5, 7)
    x, out = tensor("x", shape, held), tensor("y", shape, held)
    index, updates = plain("places", (*rows, named), "int32"), tensor("u", (*rows, *shape[named:]), held, 0.01)
    made = whole("ScatterNd", [x, index, updates], out, reduction=0)
    listed = places(rows, *shape[:named], odd=odd).reshape(index.bound)
    same(made, [given(x, 1), listed, given(updates, 2)])


@pytest.mark.sample(4)
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("held", TYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_elements(held: str, axis: int, odd: bool) -> None:
    x, index = tensor("x", (6, 6), held), plain("places", (6, 6), "int32")
    listed, updates = places((6, 6), 6, odd=odd), tensor("u", (6, 6), held)
    same(whole("GatherElements", [x, index], tensor("y", (6, 6), held), axis=axis), [given(x, 1), listed])
    made = whole("ScatterElements", [x, index, updates], tensor("y", (6, 6), held), axis=axis, reduction=0)
    listed = np.argsort(RNG.random((6, 6)), axis).astype(np.int32)  # each once
    if odd:
        listed[2, 1], listed[4, 5], listed[0, 3] = ODD[:3]
    same(made, [given(x, 1), listed, given(updates, 2)])


def test_what_is_written_where_nothing_is() -> None:
    """Known places too."""
    x, updates, out = tensor("x", (6, 5), "uint8"), tensor("u", (4,), "uint8"), tensor("y", (6, 5), "uint8")
    index = plain("places", (4, 2), "int32")
    index.data = np.array([[5, 4], [6, 0], [0, -1], [2, 2]], np.int32)
    made = whole("ScatterNd", [x, index, updates], out, reduction=0)
    arrays = [np.full(x.bound, 9, np.uint8), np.array([1, 2, 3, 4], np.uint8)]
    same(made, arrays)
    (found,) = DIALECT.execute(made, arrays)
    assert sorted(np.argwhere(found != arrays[0]).tolist()) == [[2, 2], [5, 4]]


def rows(held: str, axis: int = 0) -> Graph:
    x, index = tensor("x", (6, 6), held), plain("places", (2, 3), "int32")
    shape = (2, 3, 6) if axis == 0 else (6, 2, 3)
    return whole("Gather", [x, index], tensor("y", shape, held), axis=axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("held", TYPES)
def test_rows_read(held: str, axis: int) -> None:
    made = rows(held, axis)
    same(made, [given(made.inputs[0], 1), places((2, 3), 6)])


@pytest.mark.parametrize("place", ODD)
@pytest.mark.parametrize("held", TYPES)
def test_rows_that_are_not_there_are_an_error_of_the_same_words(held: str, place: int) -> None:
    made = rows(held)
    fine, listed = (places((2, 3), 6) for _ in range(2))
    listed[1, 1] = place
    x, words = given(made.inputs[0], 1), []
    with pytest.raises(ExecutionError) as found:
        DIALECT.execute(made, [x, listed])
    words.append(str(found.value))
    for cpu in cpus():
        compiled = compile(made, threads=1, numerics=QNN, cpu=cpu)
        with pytest.raises(ExecutionError) as found:
            compiled.run([x, listed])
        words.append(str(found.value))
        np.testing.assert_array_equal(compiled.run([x, fine])[0], DIALECT.execute(made, [x, fine])[0])  # and on it goes
    assert len(set(words)) == 1
    assert f"qnn.Gather 'y': indices must be from 0 to 5; got {place}\n" in words[0]
