"""Moves of real numbers for the HTP: float graphs run in half precision, and what is only moved is held so too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.numerics import QNN as QNN_NUMERICS
from edgewright.backends.qualcomm.dialect.table import QNN
from edgewright.engine import compile
from edgewright.ir.graph import Graph, Op, QParams, Value

FLOAT = np.dtype(np.float32)
# Neither of these is a number of 16 bits; the first of the second row is beyond their range.
X = np.array([[0.1, 1.0001, -2.7183, 3.14159], [70000.0, -1e-9, 1e3 + 0.3, -0.3333]], np.float32)


def value(name: str, shape: Any, dtype: Any = FLOAT, data: Any = None) -> Value:
    return Value(name, np.dtype(dtype), tuple(shape), tuple(range(len(shape))), data)


def graph(kind: str, shape: Any, *more: Value, image: bool = False, **params: Any) -> Graph:
    x, y = value("x", (1, 2, 4, 1) if image else X.shape), value("y", shape)
    return Graph("g", [x], [y], [Op(f"qnn.{kind}", {"inputs": [x, *more], **params}, [y])])


def places(*data: Any) -> Value:
    array = np.array(data, np.int32)
    return value("i", array.shape, np.int32, array)


GRAPHS = {
    "Reshape": graph("Reshape", (4, 2)),
    "Transpose": graph("Transpose", (4, 2), perm=[1, 0]),
    "Concat": graph("Concat", (4, 4), value("c", (2, 4), data=X + np.float32(0.01)), axis=0),
    "StridedSlice": graph(
        "StridedSlice", (2, 2), ranges=[[0, 2, 1], [0, 4, 2]], begin_mask=0, end_mask=0, shrink_axes=0
    ),
    "Tile": graph("Tile", (4, 4), multiples=[2, 1]),
    "Pad": graph("Pad", (4, 4), scheme=0, pad_amount=[[1, 1], [0, 0]], pad_constant_value=0.1),
    "Pad, mirrored": graph("Pad", (2, 6), scheme=2, pad_amount=[[0, 0], [1, 1]], pad_constant_value=0.0),
    "ChannelShuffle": graph("ChannelShuffle", (2, 4), num_groups=2, axis=1),
    "Gather": graph("Gather", (3, 4), places(1, 0, 1), axis=0),
    "GatherElements": graph("GatherElements", (1, 4), places([1, 0, 1, 0]), axis=0),
    "ScatterElements": graph(
        "ScatterElements", (2, 4), places([0, 0, 1, 0]), value("u", (1, 4), data=X[:1] / 3), axis=0, reduction=0
    ),
    "ResizeNearestNeighbor": graph("ResizeNearestNeighbor", (1, 4, 8, 1), image=True, align_corners=False,
                          half_pixel_centers=False),
}  # fmt: skip


def both(made: Graph, x: Any = X) -> list[Any]:
    """By the reference and by machine code."""
    given = [x.reshape(made.inputs[0].bound)]
    compiled = compile(made, threads=1, numerics=QNN_NUMERICS)
    return [DIALECT.execute(made, given)[0], compiled.run(given)[0]]


def in_half(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_moved_is_held_in_half_precision(name: str) -> None:
    for found in both(GRAPHS[name]):
        assert np.array_equal(found, in_half(found)), name
        assert found.dtype == FLOAT and np.isinf(found).any()  # 70000 is


def test_the_same_elements_are_where_they_belong() -> None:
    for found in both(GRAPHS["Transpose"]):
        assert np.array_equal(found, in_half(X).T)
    for found in both(GRAPHS["Pad"]):
        assert np.array_equal(found[[0, 3]], np.full((2, 4), in_half(np.float32(0.1))))


def test_the_largest_are_found_among_numbers_of_half_precision() -> None:
    """Two that 16 bits hold alike are equal: the first comes first."""
    x = np.array([[1.0, 1.0001, 0.5, 2.0]], np.float32)
    given, best, where = value("x", x.shape), value("b", (1, 3)), value("w", (1, 3), np.int32)
    made = Graph("g", [given], [best, where],
                 [Op("qnn.TopK", {"inputs": [given], "k": 3, "largest": True}, [best, where])])  # fmt: skip
    for found in (DIALECT.execute(made, [x]), compile(made, threads=1, numerics=QNN_NUMERICS).run([x])):
        assert found[0].tolist() == [[2.0, 1.0, 1.0]] and found[1].tolist() == [[3, 0, 1]]


def test_quantizing_reads_float32() -> None:
    """The conversion at a graph's entrance is of the caller's own numbers, not rounded to fp16 before."""
    assert {"Reshape", "TopK", "Gather"} <= {name for name, row in QNN.items() if row.moves}
    assert not QNN["Quantize"].moves
    q = QParams(1e-4, 20000, np.dtype(np.uint16), 0, 65535)
    given, out = value("x", (4,)), Value("y", q.dtype, (4,), (0,), q=q)
    made = Graph("g", [given], [out], [Op("qnn.Quantize", {"inputs": [given]}, [out])])
    x = np.array([0.1, 1.0001, -1.7183, 3.14159], np.float32)
    wanted, rounded = ((np.rint(n.astype(np.float64) / 1e-4) + 20000).tolist() for n in (x, in_half(x)))
    assert wanted != rounded
    for found in both(made, x):
        assert found.tolist() == wanted
