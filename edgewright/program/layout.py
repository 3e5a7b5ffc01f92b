"""Dim orders: channels-last where the model asks for it and kernels follow, contiguous everywhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from edgewright.ir.graph import Graph, Op, Value

_FORMATS = {torch.channels_last: (0, 2, 3, 1), torch.channels_last_3d: (0, 2, 3, 4, 1)}

# Operators whose kernels work in any one dim order; their outputs take that of their inputs.
_FOLLOWERS = {
    "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.add.Scalar", "aten.sub.Scalar",
    "aten.mul.Scalar", "aten.div.Scalar", "aten.relu.default", "aten.hardtanh.default", "aten.sigmoid.default",
    "aten.tanh.default", "aten.gelu.default", "aten.clamp.default", "aten.neg.default", "aten.exp.default",
    "aten.leaky_relu.default", "aten.elu.default", "aten.abs.default", "aten.sqrt.default", "aten.rsqrt.default",
    "aten.convolution.default", "aten.max_pool2d_with_indices.default",
    "aten._to_copy.default", "aten.clone.default",
    "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default",
}  # fmt: skip


_ALIKE = {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"}  # broadcast by contiguous strides


def contiguous(rank: int) -> tuple[int, ...]:
    return tuple(range(rank))


def assign_dim_orders(graph: Graph) -> None:
    """Give every tensor its dim order, adding copies where a kernel needs another one than its input has."""
    ops: list[Op] = []
    stored: set[Value] = set()  # constants that an operator reads already
    for op in graph.ops:
        asked = op.args.get("memory_format")
        if op.kind in ("aten.clone.default", "aten._to_copy.default") and asked in (*_FORMATS, torch.contiguous_format):
            _set(op, _FORMATS.get(asked))
        elif op.kind == "delegate":
            _align_delegate(op, ops)
        elif op.graphs:  # branches read what they need in the order they want
            _set(op, None)
            for branch in op.graphs.values():
                assign_dim_orders(branch)
        else:
            order = _common(op) if op.kind in _FOLLOWERS else None
            _align(op, order, ops, stored)
            _set(op, order)
        ops.append(op)
    graph.ops = ops


def _set(op: Op, order: tuple[int, ...] | None) -> None:
    for out in op.outputs:
        if out is not None and out.dtype is not None:
            rank = len(out.shape)
            out.dim_order = order if order is not None and len(order) == rank else contiguous(rank)


def _common(op: Op) -> tuple[int, ...] | None:
    """The dim order an operator's data is in, if it is not contiguous."""
    if op.kind in _ALIKE and len({v.shape for v in op.inputs() if v.dtype is not None}) > 1:
        return None
    return next((v.dim_order for v in op.inputs() if not v.constant and v.dim_order != contiguous(len(v.shape))), None)


def _align(op: Op, order: tuple[int, ...] | None, ops: list[Op], stored: set[Value]) -> None:
    """Bring every input of ``op`` to ``order`` (or contiguous)."""
    moved: dict[Value, Value] = {}
    for value in list(op.inputs()):
        rank = len(value.shape)
        wanted = order if order is not None and len(order) == rank else contiguous(rank)
        if value.constant and value not in stored:
            stored.add(value)
            value.dim_order = wanted  # stored in whatever order is read
        if value.dtype is None or value.dim_order == wanted or value in moved:
            continue
        if value.constant:  # read in two orders, stored in both
            moved[value] = replace(value, dim_order=wanted)
            continue
        copy = Value(f"{value.name}_{'cl' if order else 'contiguous'}", value.dtype, value.shape, wanted)
        ops.append(Op("aten.clone.default", {"self": value, "memory_format": None}, [copy], op.origin))
        moved[value] = copy
    if moved:
        op.args = {name: _replace(arg, moved) for name, arg in op.args.items()}


def _align_delegate(op: Op, ops: list[Op]) -> None:
    """A delegate was lowered for the orders its inputs had then."""
    inputs = []
    orders = op.args.get("orders") or [contiguous(len(v.shape)) for v in op.args["inputs"]]
    for value, wanted in zip(op.args["inputs"], orders, strict=True):
        if value.dim_order != wanted:
            copy = Value(f"{value.name}_moved", value.dtype, value.shape, wanted)
            ops.append(Op("aten.clone.default", {"self": value, "memory_format": None}, [copy], op.origin))
            value = copy
        inputs.append(value)
    op.args["inputs"] = inputs


def _replace(tree: Any, moved: dict[Value, Value]) -> Any:
    if isinstance(tree, Value):
        return moved.get(tree, tree)
    return [_replace(t, moved) for t in tree] if isinstance(tree, list) else tree
