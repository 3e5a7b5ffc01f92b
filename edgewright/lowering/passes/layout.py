"""Layout propagation: lowers a group of operators to a core graph, in which each tensor has one or more dim orders.

Operators request their operands in the order they need; a permute is emitted the first time an order is missing, and
never between two operators that agree. A permute in the model itself emits nothing: it only relabels dimensions.
Elementwise operators follow their operands (``common_order``), so a run of them after a convolution stays in NHWC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Dim, Graph, Op, Origin, QParams, Value

Order = tuple[int, ...]
NHWC: Order = (0, 2, 3, 1)
NLC: Order = (0, 2, 1)


def identity(rank: int) -> Order:
    return tuple(range(rank))


def order_with_last(dim: int, rank: int) -> Order:
    """All dimensions in order, except ``dim``, which is last."""
    return (*(d for d in range(rank) if d != dim), dim)


def is_trivial_permutation(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """True if a permutation moves only dimensions of size 1, and so no data."""
    nontrivial = [d for d in dims if shape[d] != 1]
    return nontrivial == sorted(nontrivial)


class GroupLowering:
    """Builds the core graph of one group. ``rows`` has a ``lower`` function for each operator."""

    def __init__(self, group: Graph, rows: Any) -> None:
        self.group = group
        self.rows = rows
        self.graph = Graph(group.name)
        self._by_order: dict[Value, dict[Order, Value]] = {}
        self._constants: dict[tuple[Value, Any], Value] = {}
        self.origin = Origin()  # of the current operator

    def run(self) -> Graph:
        for value in self.group.inputs:
            stored = self._device(value, value.dim_order)
            self._by_order[value] = {value.dim_order: stored}
            self.graph.inputs.append(stored)
        for op in self.group.ops:
            self.origin = op.origin
            self.rows[op.kind].lower(self, op)
        for value in self.group.outputs:
            self.graph.outputs.append(self._output(value))
        return self.graph

    def _output(self, value: Value) -> Value:
        """A graph output: must be produced by a node, and be distinct from inputs and other outputs."""
        device_value = self.get(value, value.dim_order)
        used = {*self.graph.inputs, *self.graph.outputs}
        if device_value in used or device_value.constant:
            copy = self._device(value, value.dim_order)
            self.copy(device_value, copy)
            return copy
        return device_value

    # --------------------------------------------------------------------------------------------------- values

    def _device(self, value: Value, order: Order) -> Value:
        shape = tuple(value.bound[d] for d in order)
        q = value.q
        return Value(f"{value.name}_{''.join(map(str, order))}", value.dtype, shape, identity(len(shape)), q=q)

    def orders(self, value: Value) -> list[Order]:
        """The dim orders in which a tensor is available."""
        return list(self._by_order.get(value, {}))

    def get(self, value: Value, order: Order | None = None) -> Value:
        """A tensor in a dim order (by default the logical one)."""
        order = identity(len(value.shape)) if order is None else order
        if value.constant:
            return self._constant(value, order)
        available = self._by_order[value]
        if order not in available:
            stored_order, stored = next(iter(available.items()))
            permuted = self._device(value, order)
            self.permute(stored, permuted, [stored_order.index(d) for d in order])
            available[order] = permuted
        return available[order]

    def _constant(self, value: Value, order: Order) -> Value:
        key = (value, order)
        if key not in self._constants:
            permuted = self._device(value, order)
            assert value.data is not None
            permuted.data = np.ascontiguousarray(value.data.transpose(order))
            if value.q is not None and value.q.axis is not None:
                permuted.q = with_axis(value.q, order.index(value.q.axis % len(order)))
            self._constants[key] = permuted
        return self._constants[key]

    def constant(self, data: Array, q: QParams | None = None) -> Value:
        """A new constant."""
        return Value("constant", data.dtype, data.shape, identity(data.ndim), data, q=q)

    def alias(self, value: Value, order: Order, device_value: Value) -> None:
        """Make an existing value of the core graph ``value`` in ``order``."""
        self._by_order.setdefault(value, {})[order] = device_value

    def make(self, value: Value, order: Order | None = None) -> Value:
        """A new value of the core graph for an operator's result, in a dim order."""
        order = identity(len(value.shape)) if order is None else order
        result = self._device(value, order)
        self._by_order.setdefault(value, {})[order] = result
        return result

    def temporary(self, shape: Sequence[int], like: Value) -> Value:
        """A value between two nodes of one operator."""
        return Value("temporary", like.dtype, tuple(shape), identity(len(shape)), q=like.q)

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        """Append a node."""
        self.graph.ops.append(Op(kind, args, [out], self.origin))

    def permute(self, source: Value, out: Value, dims: list[int]) -> None:
        """Append a permute."""
        self.emit("permute", out, self=source, dims=dims)

    def copy(self, source: Value, out: Value) -> None:
        """Append a copy."""
        self.emit("clone", out, self=source)


def with_axis(q: QParams, axis: int) -> QParams:
    return QParams(q.scale, q.zero_point, q.dtype, q.qmin, q.qmax, axis, q.block, q.dynamic)


def common_order(low: GroupLowering, op: Op, rank: int) -> Order:
    """The dim order of an elementwise operator: that of its operands, if one is not in logical order."""
    orders = [o for v in op.inputs() if not v.constant for o in low.orders(v) if len(o) == rank]
    non_identity = [o for o in orders if o != identity(rank)]
    compatible = all(
        v.constant or sum(isinstance(s, Dim) for s in v.shape) < 2 or len(v.shape) == rank for v in op.inputs()
    )
    return non_identity[0] if non_identity and compatible else identity(rank)
