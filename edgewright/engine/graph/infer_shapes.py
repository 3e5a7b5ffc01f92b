"""Shape inference: specialize a graph to concrete input shapes with the shape rules of ``validate.py``."""

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
    """Copy the graph with inputs of these shapes, inferring the shape of every other value."""
    if len(shapes) != len(graph.inputs):
        raise InputError("device graph", f"takes {len(graph.inputs)} inputs", value=len(shapes))
    specialized: dict[Value, Value] = {}
    for value, shape in zip(graph.inputs, shapes, strict=True):
        fits = len(shape) == len(value.bound) and all(n <= limit for n, limit in zip(shape, value.bound, strict=True))
        if not fits and (len(shape) == len(value.bound) or math.prod(shape) != math.prod(value.bound)):
            raise InputError(f"input {value.name}", f"must fit in {list(value.bound)}", value=list(shape))
        specialized[value] = _with_shape(value, shape)
    declared = all(tuple(shape) == value.bound for value, shape in zip(graph.inputs, shapes, strict=True))
    ops = [_specialize_op(op, specialized, declared) for op in graph.ops]
    outputs = [specialized.get(v, v) for v in graph.outputs]
    return Graph(graph.name, [specialized[v] for v in graph.inputs], outputs, ops)


def _with_shape(value: Value, shape: Shape) -> Value:
    return Value(value.name, value.dtype, tuple(shape), tuple(range(len(shape))), q=value.q)


def _specialize_op(op: Op, specialized: dict[Value, Value], declared: bool) -> Op:
    """``declared``: inputs have the shapes the graph declares, so inferred results must match the declared ones."""

    def substitute(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(substitute(g) for g in argument)
        return specialized.get(argument, argument) if isinstance(argument, Value) else argument

    args = {name: substitute(argument) for name, argument in op.args.items()}
    limits = args.get("limits")
    if limits is not None and limits[0] > limits[1]:
        args["limits"] = (limits[1], limits[1])  # the upper limit wins, as in torch.clamp
    new = Op(op.kind, args, list(op.outputs), op.origin)
    rule = SHAPE_RULES.get(op.kind) or (aten_shape if is_aten_op(op.kind) else None)
    unchanged = [v.bound for v in new.inputs()] == [v.bound for v in op.inputs()]
    if unchanged and (len(op.outputs) > 1 or rule is None):
        return new  # validated before
    if rule is None or len(op.outputs) != 1 or op.outputs[0] is None:
        raise ExecutionError(f"device graph: {op.name}", "must have one output, of a shape that is known here")
    try:
        shape = tuple(int(n) for n in rule(new))
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise ExecutionError(f"device graph: {op.name}", f"does not hold together: {error}") from error
    out = op.outputs[0]
    if declared and shape != out.bound:
        raise ExecutionError(f"device graph: {op.name}", f"must have shape {list(shape)}", value=list(out.bound))
    new.outputs[0] = specialized[out] = _with_shape(out, shape)
    return new
