"""Graph inputs and outputs: storage in the caller's arrays, and copies of them inside the arena."""

from __future__ import annotations

import numpy as np

from edgewright.engine.graph.layout import Storage, dense_layout
from edgewright.engine.graph.nodes import Node
from edgewright.engine.plan import Address, TensorSpec
from edgewright.ir.graph import Op, Value


def caller_storage(value: Value, address: Address) -> Storage:
    """The dense storage of a value in the caller's array."""
    assert value.dtype is not None
    raw = value.q is not None and value.q.dtype == np.dtype(np.int8)
    return Storage(value, address, dense_layout(tuple(int(n) for n in value.bound), value.dtype.itemsize), raw)


def tensor_spec(value: Value) -> TensorSpec:
    """The name, dtype and shape of an input or output."""
    assert value.dtype is not None
    return TensorSpec(value.name, value.dtype, tuple(int(n) for n in value.bound))


def clone_value(value: Value) -> Value:
    """A new value of the same type and shape."""
    return Value(value.name + "'", value.dtype, value.shape, value.dim_order, q=value.q)


def replace_value(node: Node, old: Value, new: Value) -> None:
    """Make a node read ``new`` in place of ``old``. Operators are copied: the graph's own stay unchanged."""

    def substitute(argument: object) -> object:
        if isinstance(argument, list):
            return [substitute(a) for a in argument]
        return new if argument is old else argument

    ops = [Op(op.kind, {k: substitute(v) for k, v in op.args.items()}, op.outputs, op.origin) for op in node.ops]
    node.sum = next((new_op for op, new_op in zip(node.ops, ops, strict=True) if op is node.sum), None)
    node.ops = ops
    node.residual = new if node.residual is old else node.residual
    node.attention = None if node.attention is None else node.attention.replace_value(old, new)
    for part in node.parts:
        replace_value(part, old, new)
