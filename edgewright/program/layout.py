"""Dim order propagation: channels-last where the model requests it and kernels support it, contiguous elsewhere.

One forward pass. ``clone`` and ``to`` with a memory format set a dim order; operators in ``_FOLLOWERS`` keep that of
their operands; every other kernel needs contiguous operands and produces contiguous results. A copy is inserted where
an operand has another dim order than its consumer needs; constants are simply stored in the order they are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.graph import Graph, Op, Value

_FORMATS = {torch.channels_last: (0, 2, 3, 1), torch.channels_last_3d: (0, 2, 3, 4, 1)}

# Operators whose kernels support any dim order, which their results then have: a test runs them in the stock runtime.
_ELEMENTWISE = {overload for row in OPS.values() if row.op_class is OpClass.ELEMENTWISE for overload in row.aten}
_FOLLOWERS = _ELEMENTWISE | {
    "aten.convolution.default", "aten.max_pool2d_with_indices.default", "aten._to_copy.default", "aten.clone.default",
    "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default",
}  # fmt: skip


def contiguous(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def assign_dim_orders(graph: Graph) -> None:
    """Assign a dim order to every tensor, and insert copies where a kernel needs another than its input has."""
    ops: list[Op] = []
    assigned: set[Value] = set()  # constants with an assigned dim order
    for op in graph.ops:
        memory_format = op.args.get("memory_format")
        if op.kind in ("aten.clone.default", "aten._to_copy.default") and memory_format in (
            *_FORMATS,
            torch.contiguous_format,
        ):
            _set_outputs(op, _FORMATS.get(memory_format))
        elif op.kind == "delegate":
            _align_delegate(op, ops)
        elif op.graphs:  # branches insert their own copies
            _set_outputs(op, None)
            for branch in op.graphs.values():
                assign_dim_orders(branch)
        else:
            order = _non_contiguous_order(op) if op.kind in _FOLLOWERS else None
            _align_inputs(op, order, ops, assigned)
            _set_outputs(op, order)
        ops.append(op)
    graph.ops = ops


def _set_outputs(op: Op, order: tuple[int, ...] | None) -> None:
    for out in op.outputs:
        if out is not None and out.dtype is not None:
            rank = len(out.shape)
            out.dim_order = order if order is not None and len(order) == rank else contiguous(rank)


def _non_contiguous_order(op: Op) -> tuple[int, ...] | None:
    """The dim order of an operator's data, if it is not contiguous."""
    if op.kind in _ELEMENTWISE and len({v.shape for v in op.inputs() if v.dtype is not None}) > 1:
        return None  # kernels broadcast by contiguous strides
    return next((v.dim_order for v in op.inputs() if not v.constant and v.dim_order != contiguous(len(v.shape))), None)


def _align_inputs(op: Op, order: tuple[int, ...] | None, ops: list[Op], assigned: set[Value]) -> None:
    """Convert every input of ``op`` to ``order`` (or contiguous)."""
    converted: dict[Value, Value] = {}
    for value in list(op.inputs()):
        rank = len(value.shape)
        required = order if order is not None and len(order) == rank else contiguous(rank)
        if value.constant and value not in assigned:
            assigned.add(value)
            value.dim_order = required  # stored in the order that is read
        if value.dtype is None or value.dim_order == required or value in converted:
            continue
        if value.constant:  # read in two orders: stored twice
            converted[value] = replace(value, dim_order=required)
            continue
        copy = Value(f"{value.name}_{'cl' if order else 'contiguous'}", value.dtype, value.shape, required)
        ops.append(Op("aten.clone.default", {"self": value, "memory_format": None}, [copy], op.origin))
        converted[value] = copy
    if converted:
        op.args = {name: _substitute(arg, converted) for name, arg in op.args.items()}


def _align_delegate(op: Op, ops: list[Op]) -> None:
    """Convert inputs to the dim orders that the delegate was lowered for."""
    inputs = []
    orders = op.args.get("orders") or [contiguous(len(v.shape)) for v in op.args["inputs"]]
    for value, required in zip(op.args["inputs"], orders, strict=True):
        if value.dim_order != required:
            copy = Value(f"{value.name}_moved", value.dtype, value.shape, required)
            ops.append(Op("aten.clone.default", {"self": value, "memory_format": None}, [copy], op.origin))
            value = copy
        inputs.append(value)
    op.args["inputs"] = inputs


def _substitute(tree: Any, mapping: dict[Value, Value]) -> Any:
    if isinstance(tree, Value):
        return mapping.get(tree, tree)
    return [_substitute(t, mapping) for t in tree] if isinstance(tree, list) else tree
