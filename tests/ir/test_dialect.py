"""Dialects that a table describes: what is checked, what runs, and how operators are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.errors import EdgewrightError, FormatError, LimitError
from edgewright.ir.core.execute import Executor
from edgewright.ir.dialect import FLAG, OpRow, TableDialect, dialects_of, float_from, int_from, one_of
from edgewright.ir.graph import Graph, GraphError, Op, Value
from edgewright.ir.numerics import FLOAT32

MEMORY = 1 << 20


def _scale(op: Op, x: Any, offset: Any) -> list[Any]:
    result = x * op.args["by"]
    return [result if offset is None else result + offset]


def _halves(op: Op, x: Any) -> list[Any]:
    return [np.ascontiguousarray(half) for half in np.split(x, 2, axis=-1)]


DIALECT = TableDialect(
    "toy", "Toy", [
        OpRow("scale", ("x", "offset?"), "real real? -> real", lambda op: [op.args["x"].bound], _scale,
              {"by": int_from(1, 9), "how": one_of("up", "down"), "exact": FLAG, "slack": float_from(0, 1)}),
        OpRow("halves", ("x",), "real -> real real?",
              lambda op: [(*op.args["x"].bound[:-1], op.args["x"].bound[-1] // 2)] * 2, _halves,
              temporaries=lambda op: 1000),
    ], FLOAT32, __name__, {"real": "f32"},
)  # fmt: skip
PLAIN = {"offset": None, "by": 2, "how": "up", "exact": True, "slack": 0.5}


def tensor(name: str, *shape: int, dtype: str = "float32") -> Value:
    return Value(name, np.dtype(dtype), shape, tuple(range(len(shape))))


def scale(**changed: Any) -> Op:
    return Op("toy.scale", {"x": tensor("x", 2, 4), **PLAIN, **changed}, [tensor("y", 2, 4)])


def whole(*ops: Op) -> Graph:
    made = {v for op in ops for v in op.outputs}
    inputs = dict.fromkeys(v for op in ops for v in op.inputs() if v not in made)
    return Graph("case", list(inputs), [v for v in ops[-1].outputs if v is not None], list(ops))


def test_rows_by_kind() -> None:
    assert DIALECT.row("toy.scale").name == "scale"
    assert DIALECT.row("scale") is None and DIALECT.row("toys.scale") is None and DIALECT.row("toy.none") is None
    assert "toy.halves" in DIALECT and "core.add" not in DIALECT and 3 not in DIALECT


def test_graphs_run() -> None:
    first = scale()
    second = Op("toy.halves", {"x": first.outputs[0]}, [tensor("a", 2, 2), tensor("b", 2, 2)])
    graph, x = whole(first, second), np.arange(8, dtype=np.float32).reshape(2, 4)
    DIALECT.check(graph, MEMORY)
    left, right = DIALECT.execute(graph, [x])
    np.testing.assert_array_equal(np.concatenate([left, right], 1), x * 2)
    for op in (second, Op("toy.halves", second.args, [None, tensor("b", 2, 2)])):
        results = Executor(whole(first, op), FLOAT32, find_dialect={"toy": DIALECT}.get).run([x])
        np.testing.assert_array_equal(results[-1], right)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Op("toy.none", {}, [tensor("y", 2)]), "must be an operator of Toy; got toy.none"),
        (Op("core.add", {}, [tensor("y", 2)]), "must be an operator of Toy; got core.add"),
        (Op("toy.halves", {}, []), r"arguments: must be x; got \[\]"),
        (scale(more=1), "arguments: must be x, offset, by, how, exact, slack; got "),
        (scale(x=None), "x: must be a tensor; got nothing"),
        (scale(x=3), "x: must be a tensor of a fixed shape"),
        (scale(by=0), "by: must be an integer from 1 to 9; got 0"),
        (scale(by=True), "by: must be an integer from 1 to 9; got True"),
        (scale(how="sideways"), "how: must be one of up, down; got sideways"),
        (scale(exact=1), "exact: must be true or false; got 1"),
        (scale(slack=float("nan")), "slack: must be a number from 0 to 1; got nan"),
        (scale(x=tensor("x", 2, 4, dtype="int8")), "x: must be float32; got int8"),
        (scale(x=tensor("x", 2, 5)), r"results: must have the shapes \[\(2, 5\)\]; got \[\(2, 4\)\]"),
    ],
)
def test_what_is_wrong_is_named(op: Op, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        DIALECT.check_op(op, MEMORY)
    with pytest.raises(EdgewrightError):
        DIALECT.check(Graph("case", list(op.inputs()), list(op.outputs), [op]), MEMORY)


def test_memory() -> None:
    op = Op("toy.halves", {"x": tensor("x", 2, 4)}, [tensor("a", 2, 2), tensor("b", 2, 2)])
    DIALECT.check_op(op, 8 * 1016)
    with pytest.raises(LimitError, match=r"toy.halves.*may take 8127 bytes; got 8128"):
        DIALECT.check_op(op, 8 * 1016 - 1)


def test_a_reference_that_breaks_its_word() -> None:
    op = scale()
    op.outputs = [tensor("y", 2, 3)]
    with pytest.raises(GraphError, match=r"toy.scale 'y': must give \(2, 3\) of float32"):
        DIALECT.execute(whole(op), [np.zeros((2, 4), np.float32)])


def test_dialects_of_a_graph() -> None:
    core = Op("core.neg", {"self": tensor("x", 2, 4)}, [tensor("y", 2, 4)])
    known = {"toy": DIALECT}
    assert list(dialects_of(whole(scale(), core), known.get)) == [DIALECT]
    assert list(dialects_of(whole(core), known.get)) == []
    assert DIALECT.folder() == __file__.rpartition("/")[0]
