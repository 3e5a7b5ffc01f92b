"""From a group of operators to a device graph: which order each tensor's dimensions are held in.

A tensor may be held in several orders of its dimensions at once. Operators ask for the one they need; a transpose is
made when it is first missing, and never between two that agree. A permute is only another name for what is there.
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


def last(dim: int, rank: int) -> Order:
    """All dimensions in order, but one of them last."""
    return (*(d for d in range(rank) if d != dim), dim)


def moves_nothing(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """True if a permutation of these sizes leaves every element where it is: it moves sizes of 1 only."""
    moved = [d for d in dims if shape[d] != 1]
    return moved == sorted(moved)


class Lowering:
    """Builds the device graph of one group."""

    def __init__(self, group: Graph, rows: Any) -> None:
        self.group = group
        self.rows = rows
        self.graph = Graph(group.name)
        self._forms: dict[Value, dict[Order, Value]] = {}
        self._constants: dict[tuple[Value, Any], Value] = {}
        self.origin = Origin()  # of the operator that is being lowered

    def run(self) -> Graph:
        for value in self.group.inputs:
            held = self._device(value, value.dim_order)
            self._forms[value] = {value.dim_order: held}
            self.graph.inputs.append(held)
        for op in self.group.ops:
            self.origin = op.origin
            self.rows[op.kind].lower(self, op)
        for value in self.group.outputs:
            self.graph.outputs.append(self._output(value))
        return self.graph

    def _output(self, value: Value) -> Value:
        """An output must be made by a node, and be no input or other output as well."""
        held = self.get(value, value.dim_order)
        taken = {*self.graph.inputs, *self.graph.outputs}
        if held in taken or held.constant:
            copy = self._device(value, value.dim_order)
            self.copy(held, copy)
            return copy
        return held

    # --------------------------------------------------------------------------------------------------- values

    def _device(self, value: Value, order: Order) -> Value:
        shape = tuple(value.bound[d] for d in order)
        q = value.q
        return Value(f"{value.name}_{''.join(map(str, order))}", value.dtype, shape, identity(len(shape)), q=q)

    def orders(self, value: Value) -> list[Order]:
        """The orders a tensor is held in now."""
        return list(self._forms.get(value, {}))

    def get(self, value: Value, order: Order | None = None) -> Value:
        """A tensor in an order of its dimensions (the original one by default)."""
        order = identity(len(value.shape)) if order is None else order
        if value.constant:
            return self._constant(value, order)
        forms = self._forms[value]
        if order not in forms:
            known, held = next(iter(forms.items()))
            made = self._device(value, order)
            self.turn(held, made, [known.index(d) for d in order])
            forms[order] = made
        return forms[order]

    def _constant(self, value: Value, order: Order) -> Value:
        key = (value, order)
        if key not in self._constants:
            made = self._device(value, order)
            assert value.data is not None
            made.data = np.ascontiguousarray(value.data.transpose(order))
            if value.q is not None and value.q.axis is not None:
                made.q = with_axis(value.q, order.index(value.q.axis % len(order)))
            self._constants[key] = made
        return self._constants[key]

    def constant(self, data: Array, q: QParams | None = None) -> Value:
        """A new constant."""
        return Value("constant", data.dtype, data.shape, identity(data.ndim), data, q=q)

    def alias(self, value: Value, order: Order, held: Value) -> None:
        """Let an existing device value be ``value`` in ``order``."""
        self._forms.setdefault(value, {})[order] = held

    def make(self, value: Value, order: Order | None = None) -> Value:
        """The device value that an operator's result goes to, in an order."""
        order = identity(len(value.shape)) if order is None else order
        held = self._device(value, order)
        self._forms.setdefault(value, {})[order] = held
        return held

    def temporary(self, shape: Sequence[int], like: Value) -> Value:
        """A device value between two nodes of one operator."""
        return Value("temporary", like.dtype, tuple(shape), identity(len(shape)), q=like.q)

    def emit(self, kind: str, out: Value, /, **args: Any) -> None:
        """Append a node."""
        self.graph.ops.append(Op(kind, args, [out], self.origin))

    def turn(self, held: Value, made: Value, dims: list[int]) -> None:
        """Append the node that makes another order of a tensor."""
        self.emit("permute", made, self=held, dims=dims)

    def copy(self, held: Value, made: Value) -> None:
        """Append the node that makes a tensor again."""
        self.emit("clone", made, self=held)


def with_axis(q: QParams, axis: int) -> QParams:
    return QParams(q.scale, q.zero_point, q.dtype, q.qmin, q.qmax, axis, q.block, q.dynamic)


def common_order(low: Lowering, op: Op, rank: int) -> Order:
    """The order an elementwise operator works in: that of its operands, if one is channels-last already."""
    found = [o for v in op.inputs() if not v.constant for o in low.orders(v) if len(o) == rank]
    other = [o for o in found if o != identity(rank)]
    both = all(v.constant or sum(isinstance(s, Dim) for s in v.shape) < 2 or len(v.shape) == rank for v in op.inputs())
    return other[0] if other and both else identity(rank)
