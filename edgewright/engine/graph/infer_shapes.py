"""Shapes: inference for concrete inputs, and checks before code generation, because compiled code has no bounds checks.

A graph may come from an untrusted file. The rows of the core dialect (``ir/core``) check operands and attributes, and
infer each result's shape from its operands; a declared shape that differs is an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError, FormatError, InputError, LimitError
from edgewright.ir.core.dialect import CORE
from edgewright.ir.core.quant_params import check_values
from edgewright.ir.core.table import infer_shape
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.int_rules import ELEMENTWISE, elementwise_operands
from edgewright.ir.verify import verify

Shape = tuple[int, ...]


def check_graph(graph: Graph, memory: int) -> None:
    """Raise unless all operators are valid, shapes are static, and tensors fit in ``memory`` bytes."""
    verify(graph)
    values = list(graph.values())
    for value in values:
        if value.dtype is None or value.dynamic:
            raise ExecutionError(f"device graph: {value.name}", "must be a tensor of known sizes")
        if any(n < 0 for n in value.bound):
            raise _error(value.name, "sizes must not be negative", list(value.bound))
        if value.nbytes > memory:
            raise LimitError(f"device graph: {value.name}", f"may take {memory} bytes", value=value.nbytes)
    try:
        check_values(values)
    except FormatError as error:
        raise _error(error.where, error.rule, error.value) from error
    for op in graph.ops:
        _check_op(op, memory)
    packed = sum(_packed_size(op) for op in graph.ops)
    if packed > memory:
        raise LimitError("device graph", f"packed weights may take {memory} bytes", value=packed)


def _check_op(op: Op, memory: int) -> None:
    limits = op.args.get("limits")
    if limits is not None and not limits[0] <= limits[1]:
        raise _error(op.name, "limits must be numbers in order", limits)
    try:
        if op.kind in CORE:
            CORE.check_op(op, memory)
        elif op.outputs[0] is not None and (inferred := _infer(op)) != op.outputs[0].bound:
            raise FormatError(f"must have shape {list(inferred)}", where="result", value=list(op.outputs[0].bound))
    except FormatError as error:
        raise _error(op.name, f"{error.where} {error.rule}".strip(), error.value) from error


def _infer(op: Op) -> Shape:
    row = CORE.row(op.kind)
    if row is not None:
        return infer_shape(op, row)
    if op.kind.startswith("core."):
        raise FormatError("must be an operator of the core dialect", value=op.kind)
    if op.kind not in ELEMENTWISE:  # the declared shape; the reference checks it when it runs
        return () if op.outputs[0] is None else op.outputs[0].bound
    try:
        return np.broadcast_shapes(*(v.bound for v in elementwise_operands(op)))
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        raise FormatError(f"{error}", where="shapes") from error


def _error(name: str, rule: str, value: object) -> ExecutionError:
    return ExecutionError(f"device graph: {name}", rule, value=value, remedy="The file is damaged or not one of ours.")


def _packed_size(op: Op) -> int:
    """A lower bound on the packed size of an operator's weights: each use of a constant is packed separately."""
    weight = op.args.get("weight")
    if weight is None or weight.data is None:
        return sum(value.nbytes for value in op.inputs() if value.constant)
    channels = max(
        1, weight.bound[-1] if op.kind == "core.depthwise_conv2d" else weight.bound[0] if weight.bound else 1
    )
    padded = -(-channels // 16) * 16  # full vectors
    transformed = 4 if weight.bound[1:3] == (3, 3) and weight.q is None else 1  # Winograd filters, at most
    return int(weight.nbytes) // channels * padded * transformed


# ------------------------------------------------------------------------------------------------------ specialization


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
    unchanged = [v.bound for v in new.inputs()] == [v.bound for v in op.inputs()]
    if unchanged and len(op.outputs) > 1:
        return new  # validated before
    out = op.outputs[0] if len(op.outputs) == 1 else None
    if out is None:
        raise ExecutionError(f"device graph: {op.name}", "must have one output")
    try:
        shape = _infer(new)
    except FormatError as error:
        raise _error(op.name, f"{error.where} {error.rule}".strip(), error.value) from error
    if declared and shape != out.bound:
        raise _error(op.name, f"must have shape {list(shape)}", list(out.bound))
    new.outputs[0] = specialized[out] = _with_shape(out, shape)
    return new
