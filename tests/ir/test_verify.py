"""Graphs that a stage of the compiler must not pass on, in every dialect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.ir.aten.dialect import ATEN
from edgewright.ir.core.dialect import CORE
from edgewright.ir.graph import Graph, GraphError, Op, Value
from edgewright.ir.verify import verify

F32 = np.dtype(np.float32)


def value(name: str, *shape: int, dtype: Any = F32) -> Value:
    return Value(name, dtype, shape, tuple(range(len(shape))))


def graph(kind: str, out: Value, **args: Any) -> Graph:
    inputs = [v for v in args.values() if isinstance(v, Value)]
    return Graph("g", list(dict.fromkeys(inputs)), [out], [Op(kind, args, [out])])


X, Y, IMAGE = value("x", 2, 3), value("y", 2, 3), value("image", 1, 4, 4, 2)
WRONG = {
    "core.add: other: must be a tensor; got NoneType": graph("core.add", Y, self=X, other=None),
    "core.add: alpha: is no argument of add": graph("core.add", Y, self=X, other=X, alpha=1),
    "core.add: result: must have shape [2, 3]; got (3, 2)": graph("core.add", value("z", 3, 2), self=X, other=X),
    "core.add: self: must be": graph("core.add", value("z", 2, dtype=None), self=value("s", 2, dtype=None), other=X),
    "core.elu: alpha: must be a finite number; got nothing": graph("core.elu", Y, self=X),
    "core.elu: alpha: must be a finite number; got one": graph("core.elu", Y, self=X, alpha="one"),
    "core.permute: shapes: dimensions must each be named once; got [2, 3]": graph(
        "core.permute", Y, self=X, dims=[0, 0]
    ),
    "core.nothing: must be an operator of the core dialect; got core.nothing": graph("core.nothing", Y, self=X),
    "add: must be an operator of the core dialect; got add": graph("add", Y, self=X, other=X),
}


@pytest.mark.parametrize("message", WRONG)
def test_core_operators_follow_their_rows(message: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify(WRONG[message], CORE)
    assert str(caught.value).startswith(f"verify graph: g: {message}")


def test_a_core_graph_that_is_right() -> None:
    verify(graph("core.add", Y, self=X, other=X), CORE)


def test_dynamic_shapes_are_not_inferred() -> None:
    from edgewright.ir.graph import Dim

    dynamic = Value("d", F32, (Dim("n", 1, 8), 3), (0, 1))
    verify(graph("core.add", value("z", 8, 3), self=dynamic, other=X), CORE)


@pytest.mark.parametrize(("op", "message"), [
    (Op("add", {"self": X}, [Y]), "add: other: must be present"),
    (Op("add", {"self": X, "other": X, "gamma": 1}, [Y]), "add: gamma: is no argument of add"),
    (Op("aten.add.Tensor", {"self": X}, [Y]), "aten.add.Tensor: other: must be present"),
    (Op("nothing", {"self": X}, [Y]), "nothing: must be an operator of torch or of the op table; got nothing"),
])  # fmt: skip
def test_aten_operators_have_the_arguments_of_their_rows(op: Op, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify(Graph("g", [X], [Y], [op]), ATEN)
    assert str(caught.value) == f"verify graph: g: {message}"


def test_operators_of_torch_need_no_row() -> None:
    verify(Graph("g", [X], [Y], [Op("my_ops.twist.default", {"x": X}, [Y])]), ATEN)


def test_ssa_form() -> None:
    add = Op("core.add", {"self": X, "other": Y}, [value("z", 2, 3)])
    with pytest.raises(GraphError, match="reads a value before it is defined; got y"):
        verify(Graph("g", [X], [], [add]))
    with pytest.raises(GraphError, match="defines a value twice; got y"):
        verify(Graph("g", [X, Y], [], [Op("core.abs", {"self": X}, [Y])]))
    with pytest.raises(GraphError, match="returns a value that is never defined; got y"):
        verify(Graph("g", [X], [Y], []))


def test_an_accepted_operator_does_not_vouch_for_others_of_its_kind() -> None:
    """``AtenDialect`` remembers the names of arguments that it has accepted."""
    verify(Graph("g", [X], [Y], [Op("add", {"self": X, "other": X}, [Y])]), ATEN)
    for args in ({"self": X}, {"self": X, "other": X, "gamma": 1}):
        with pytest.raises(GraphError, match=r"must be present|is no argument"):
            verify(Graph("g", [X], [Y], [Op("add", args, [Y])]), ATEN)
    image, filters = value("x", 1, 2, 4, 4), value("w", 2, 2, 3, 3)
    convolution: dict[str, Any] = {"input": image, "weight": filters, "bias": None, "stride": [1, 1], "padding": [0, 0],
                   "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}  # fmt: skip
    out = value("y", 1, 2, 2, 2)
    verify(Graph("g", [image, filters], [out], [Op("aten.convolution.default", convolution, [out])]), ATEN)
    convolution["gamma"] = 1
    with pytest.raises(GraphError, match="gamma: is no argument of conv2d"):
        verify(Graph("g", [image, filters], [out], [Op("aten.convolution.default", convolution, [out])]), ATEN)


@pytest.mark.parametrize("place", [[0, X, [1, Y]], (Y,), [[[Y]]]])
def test_values_in_lists_are_defined(place: Any) -> None:
    with pytest.raises(GraphError, match="reads a value before it is defined; got y"):
        verify(Graph("g", [X], [], [Op("cat", {"tensors": place}, [value("z", 2, 3)])]))
    verify(Graph("g", [X, Y], [], [Op("cat", {"tensors": place}, [value("z", 2, 3)])]))
