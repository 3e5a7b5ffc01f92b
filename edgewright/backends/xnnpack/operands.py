"""What XNNPACK's lowering asks of operands, besides their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Dim, Op, QParams, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, identity


def operand(low: GroupLowering, op: Op, name: str, order: Order) -> Value:
    """An operand of an elementwise operator, in ``order``; numbers become constants."""
    value, out = op.args[name], op.outputs[0]
    assert out is not None
    if not isinstance(value, Value):
        return low.constant(np.full((1,), value, out.dtype))
    if len(value.shape) == len(order):
        return low.get(value, order)
    if value.constant:
        return low.constant(*_expanded(value, order))
    return _raised(low, value, order)


def _raised(low: GroupLowering, value: Value, order: Order) -> Value:
    """A computed operand of lower rank; nodes broadcast the original order by themselves."""
    if order == identity(len(order)) or not value.shape:
        return low.get(value)
    missing = len(order) - len(value.shape)
    shape = [1] * missing + list(value.bound)
    size = [1] * missing + [size_of(value, d) for d in range(len(value.shape))]
    wide, turned = low.temporary(shape, value), low.temporary([shape[d] for d in order], value)
    low.emit("view", wide, self=low.get(value), size=size)
    low.emit("permute", turned, self=wide, dims=list(order))
    return turned


def _expanded(value: Value, order: Order) -> tuple[Array, QParams | None]:
    """A constant of lower rank, with the dimensions it broadcasts over, in ``order``."""
    assert value.data is not None
    if order == identity(len(order)):
        return np.ascontiguousarray(value.data if value.data.ndim else value.data.reshape(1)), value.q
    data = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    return np.ascontiguousarray(data.transpose(order)), value.q


def limits(op: Op) -> dict[str, Any]:
    return {"limits": op.args["limits"]} if op.args.get("limits") else {}


def size_of(value: Value, dim: int) -> int:
    """A size of a reshape: 0 stands for the one that is known at run time."""
    size = value.shape[dim]
    return 0 if isinstance(size, Dim) else size
