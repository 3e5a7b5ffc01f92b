"""Operands of XNNPACK nodes: scalars, broadcasting, dynamic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Dim, Op, QParams, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, identity


def operand(low: GroupLowering, op: Op, name: str, order: Order) -> Value:
    """An operand of an elementwise operator in dimension order ``order``; scalars become constants."""
    value, out = op.args[name], op.outputs[0]
    assert out is not None
    if not isinstance(value, Value):
        return low.constant(np.full((1,), value, out.dtype))
    if len(value.shape) == len(order):
        return low.get(value, order)
    if value.constant:
        return low.constant(*_expand_constant(value, order))
    return _unsqueeze_operand(low, value, order)


def _unsqueeze_operand(low: GroupLowering, value: Value, order: Order) -> Value:
    """A computed operand of lower rank. Nodes broadcast it in the original order; any other needs a transpose."""
    if order == identity(len(order)) or not value.shape:
        return low.get(value)
    missing = len(order) - len(value.shape)
    shape = [1] * missing + list(value.bound)
    size = [1] * missing + [reshape_size(value, d) for d in range(len(value.shape))]
    unsqueezed, transposed = low.temporary(shape, value), low.temporary([shape[d] for d in order], value)
    low.emit("core.view", unsqueezed, self=low.get(value), size=size)
    low.emit("core.permute", transposed, self=unsqueezed, dims=list(order))
    return transposed


def _expand_constant(value: Value, order: Order) -> tuple[Array, QParams | None]:
    """A constant of lower rank with the broadcast dimensions added, in ``order``."""
    assert value.data is not None
    if order == identity(len(order)):
        return np.ascontiguousarray(value.data if value.data.ndim else value.data.reshape(1)), value.q
    data = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    return np.ascontiguousarray(data.transpose(order)), value.q


def limits(op: Op) -> dict[str, Any]:
    return {"limits": op.args["limits"]} if op.args.get("limits") else {}


def reshape_size(value: Value, dim: int) -> int:
    """A size argument of a reshape: 0 marks the dynamic dimension."""
    size = value.shape[dim]
    return 0 if isinstance(size, Dim) else size
