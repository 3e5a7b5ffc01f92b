"""Operators on constants alone: their results are constants of the plan, and errors stay errors of a run."""

from __future__ import annotations

import numpy as np
import pytest

from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.backends.registry import find_dialect
from edgewright.engine import compile
from edgewright.engine.graph.legalize import fold_constants
from edgewright.errors import ExecutionError
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.numerics import FLOAT32


def value(name: str, shape: tuple[int, ...], data: np.ndarray | None = None, dtype: type = np.float32) -> Value:
    return Value(name, np.dtype(dtype), shape, tuple(range(len(shape))), data)


def graph(rows: int) -> tuple[Graph, np.ndarray]:
    """``x + (a + a)``, where ``a`` is a constant."""
    data = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    x, a, b, y = value("x", (rows, 3)), value("a", (rows, 3), data), value("b", (rows, 3)), value("y", (rows, 3))
    ops = [Op("core.add", {"self": a, "other": a}, [b]), Op("core.add", {"self": x, "other": b}, [y])]
    return Graph("g", [x], [y, b], ops), data


def test_results_become_constants() -> None:
    made, data = graph(2)
    folded = fold_constants(made, FLOAT32, find_dialect)
    assert [op.kind for op in folded.ops] == ["core.add"]
    operand = folded.ops[0].args["other"]
    assert operand is folded.outputs[1]
    assert np.array_equal(operand.data, 2 * data)
    total, constant = compile(made, threads=1).run([np.ones((2, 3), np.float32)])
    assert np.array_equal(total, 2 * data + 1)
    assert np.array_equal(constant, 2 * data)


def test_graphs_without_them_stay_the_same() -> None:
    made, _ = graph(2)
    rest = Graph("g", [*made.inputs, made.outputs[1]], made.outputs[:1], made.ops[1:])
    assert fold_constants(rest, FLOAT32, find_dialect) is rest


def test_large_results_are_computed_in_each_run() -> None:
    made, data = graph(1 << 15)
    assert fold_constants(made, FLOAT32, find_dialect) is made
    (total, _) = compile(made, threads=1).run([np.ones(data.shape, np.float32)])
    assert np.array_equal(total, 2 * data + 1)


def test_errors_are_reported_when_the_graph_runs() -> None:
    x = value("x", (2, 3), np.ones((2, 3), np.float32))
    index, y = value("i", (1,), np.array([7], np.int32), np.int32), value("y", (1, 3))
    made = Graph("g", [], [y], [Op("qnn.Gather", {"inputs": [x, index], "axis": 0}, [y])])
    assert fold_constants(made, QNN, find_dialect) is made
    compiled = compile(made, threads=1, numerics=QNN)
    with pytest.raises(ExecutionError, match="indices must be from 0 to 1"):
        compiled.run([])
