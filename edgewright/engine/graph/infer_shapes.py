"""Shapes of a device graph for inputs of certain shapes: every other value's follows, by the rules of ``check.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgewright.engine.graph.validate import SHAPE_RULES
from edgewright.errors import ExecutionError, InputError
from edgewright.ir.core.aten_fallback import aten_shape, is_aten_op
from edgewright.ir.graph import Graph, Op, Value

Shape = tuple[int, ...]


def specialize(graph: Graph, shapes: Sequence[Shape]) -> Graph:
    """The graph for inputs of these shapes: every other value's follows."""
    if len(shapes) != len(graph.inputs):
        raise InputError("device graph", f"takes {len(graph.inputs)} inputs", value=len(shapes))
    made: dict[Value, Value] = {}
    for value, shape in zip(graph.inputs, shapes, strict=True):
        fits = len(shape) == len(value.bound) and all(n <= most for n, most in zip(shape, value.bound, strict=True))
        if not fits and (len(shape) == len(value.bound) or math.prod(shape) != math.prod(value.bound)):
            raise InputError(f"input {value.name}", f"must fit in {list(value.bound)}", value=list(shape))
        made[value] = _shaped(value, shape)
    declared = all(tuple(shape) == value.bound for value, shape in zip(graph.inputs, shapes, strict=True))
    ops = [_specialize_op(op, made, declared) for op in graph.ops]
    outputs = [made.get(v, v) for v in graph.outputs]
    return Graph(graph.name, [made[v] for v in graph.inputs], outputs, ops)


def _shaped(value: Value, shape: Shape) -> Value:
    return Value(value.name, value.dtype, tuple(shape), tuple(range(len(shape))), q=value.q)


def _specialize_op(op: Op, made: dict[Value, Value], declared: bool) -> Op:
    """``declared``: inputs have the shapes that the graph declares, so results must have theirs."""

    def changed(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(changed(g) for g in given)
        return made.get(given, given) if isinstance(given, Value) else given

    args = {name: changed(given) for name, given in op.args.items()}
    limits = args.get("limits")
    if limits is not None and limits[0] > limits[1]:
        args["limits"] = (limits[1], limits[1])  # the upper one has the last word
    new = Op(op.kind, args, list(op.outputs), op.origin)
    rule = SHAPE_RULES.get(op.kind) or (aten_shape if is_aten_op(op.kind) else None)
    unchanged = [v.bound for v in new.inputs()] == [v.bound for v in op.inputs()]
    if unchanged and (len(op.outputs) > 1 or rule is None):
        return new  # what it was checked for
    if rule is None or len(op.outputs) != 1 or op.outputs[0] is None:
        raise ExecutionError(f"device graph: {op.kind}", "must have one output, of a shape that is known here")
    try:
        shape = tuple(int(n) for n in rule(new))
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise ExecutionError(f"device graph: {op.kind}", f"does not hold together: {error}") from error
    out = op.outputs[0]
    if declared and shape != out.bound:
        raise ExecutionError(
            f"device graph: {op.kind}", f"makes a tensor of shape {list(shape)}", value=list(out.bound)
        )
    new.outputs[0] = made[out] = _shaped(out, shape)
    return new
