"""Layout propagation: lowers a group of operators to a core graph, in which each tensor has one or more dim orders.

Operators request their operands in the order they need; a permute is emitted the first time an order is missing, and
never between two operators that agree. A permute in the model itself emits nothing: it only relabels dimensions.
Elementwise operators follow their operands (``common_order``), so a run of them after a convolution stays in NHWC.
Flattening of images is deferred: a matrix product can permute the columns of its weights instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.ops import OPS
from edgewright.ir.dtypes import DType
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


class NotLoweredError(ValueError):
    """The target dialect cannot express a call, or its arguments are invalid; the runtime leaves it to its kernel."""


def require(condition: object, rule: str) -> None:
    if not condition:
        raise NotLoweredError(rule)


class LoweringContext:
    """A core graph under construction, with the dim orders in which each tensor of the source graph is available.

    ``relabels_permutes``: a permute of the source graph emits nothing. ``max_concatenated``: the inputs of one node.
    ``statistics_dtype``: in which statistics of a batch norm become factors.
    """

    relabels_permutes = True
    max_concatenated = 1 << 31
    statistics_dtype: type[np.floating[Any]] = np.float64

    def __init__(self, name: str) -> None:
        self.graph = Graph(name)
        self._by_order: dict[Value, dict[Order, Value]] = {}
        self._constants: dict[tuple[Value, Any], Value] = {}
        self.origin = Origin()  # of the current operator

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
            permuted, dims = self._device(value, order), [stored_order.index(d) for d in order]
            if stored.data is not None:  # of an operator that creates a tensor
                permuted.data = np.ascontiguousarray(stored.data.transpose(dims))
            else:
                self.permute(stored, permuted, dims)
            available[order] = permuted
        return available[order]

    def _constant(self, value: Value, order: Order) -> Value:
        key = (value, order)
        if key not in self._constants:
            permuted = self._device(value, order)
            assert value.data is not None
            permuted.data = self.transpose_constant(value.data, order)
            if value.q is not None and value.q.axis is not None:
                permuted.q = with_axis(value.q, order.index(value.q.axis % len(order)))
            self._constants[key] = permuted
        return self._constants[key]

    def transpose_constant(self, data: Array, order: Order) -> Array:
        """The contents of a constant in a dim order."""
        return np.ascontiguousarray(data.transpose(order))

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

    def compute(self, kind: str, shape: Sequence[int], dtype: DType | None, /, **args: Any) -> Value:
        """Append a node and return its result, a value between two nodes of one operator."""
        out = Value("temporary", dtype, tuple(shape), identity(len(shape)))
        self.emit(kind, out, **args)
        return out

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """A value of the core graph in another shape."""
        if tuple(shape) == value.bound:
            return value
        return self.compute("core.view", shape, value.dtype, self=value, size=list(shape))

    def scalar_dtype(self, dtype: DType) -> DType:
        """The type in which a number is added to or multiplied with operands of ``dtype``."""
        return dtype

    def require_in_range(self, index: Value, size: int, *, wrap: bool) -> None:
        """Raise unless an index tensor is known to fit a dimension of ``size``; ``wrap``: negative indices count from
        its end."""
        data = index.data
        require(data is not None and data.max() < size and data.min() >= (-size if wrap else 0), "must be in range")

    def require_nonzero(self, divisor: Any) -> None:
        """Raise unless a divisor, a number or a tensor, is known to have no zeros."""
        data = divisor.data if isinstance(divisor, Value) else divisor
        require(data is not None and np.all(data), "must not be zero")

    def permute(self, source: Value, out: Value, dims: list[int]) -> None:
        """Append a permute."""
        self.emit("core.permute", out, self=source, dims=dims)

    def copy(self, source: Value, out: Value) -> None:
        """Append a copy."""
        self.emit("core.clone", out, self=source)


class GroupLowering(LoweringContext):
    """Builds the core graph of one group. ``rows`` has a ``lower`` function for each operator."""

    def __init__(self, group: Graph, rows: Any) -> None:
        super().__init__(group.name)
        self.group = group
        self.rows = rows

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


def with_axis(q: QParams, axis: int) -> QParams:
    return QParams(q.scale, q.zero_point, q.dtype, q.qmin, q.qmax, axis, q.block, q.dynamic)


def common_order(low: LoweringContext, op: Op, rank: int) -> Order:
    """The dim order of an elementwise operator: that of its operands, if one is not in logical order."""
    logical, values = identity(rank), list(op.inputs())
    other = next((o for v in values if not v.constant for o in low.orders(v) if len(o) == rank and o != logical), None)
    if other is None:
        return logical
    compatible = all(v.constant or sum(isinstance(s, Dim) for s in v.shape) < 2 or len(v.shape) == rank for v in values)
    return other if compatible else logical


def permuted_order(op: Op, order: Order) -> Order:
    """For ``permute``, ``transpose`` and ``t``: evaluated by the op table on dimensions of distinct sizes."""
    rank = len(op.args["self"].shape)
    sizes = OPS[op.kind].call({**op.args, "self": np.zeros([2 + d for d in range(rank)])})[0].shape
    names = {size - 2: position for position, size in enumerate(sizes)}
    return tuple(names[d] for d in order)


def squeezed_order(op: Op, order: Order) -> Order:
    """For ``squeeze`` and ``unsqueeze``: size-1 dimensions disappear or appear; the others keep their order."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    if len(out.shape) > rank:
        dim = op.args["dim"] % (rank + 1)
        shifted = [d + (d >= dim) for d in order]
        return (*shifted[:dim], dim, *shifted[dim:])
    dim_arg = op.args.get("dim")
    dims = range(rank) if dim_arg is None else dim_arg if isinstance(dim_arg, list | tuple) else [dim_arg]
    removed = {d % rank for d in dims if x.bound[d] == 1} if rank else set()
    return tuple(d - sum(g < d for g in removed) for d in order if d not in removed)


class FlatteningLowering(GroupLowering):
    """A lowering that defers flattening. ``flat``: value to the value in its stored layout, and column indices."""

    def __init__(self, group: Graph, rows: Any) -> None:
        super().__init__(group, rows)
        self.flat: dict[Value, tuple[Value, Array]] = {}
        self._deferred: dict[Value, Callable[[], Value]] = {}  # emits the value with columns in logical order

    def defer_flatten(self, value: Value, unflattened: Value, indices: Array, materialize: Callable[[], Value]) -> None:
        """Record ``unflattened`` as ``value`` with permuted columns; ``materialize`` emits it only on demand."""
        self.flat[value] = (unflattened, indices)
        self._deferred[value] = materialize

    def alias_deferred(self, value: Value, out: Value) -> bool:
        """Alias ``out`` to ``value``, if that is a deferred flattened image."""
        if value in self._deferred:
            self.defer_flatten(out, *self.flat[value], lambda: self.get(value))
            return True
        return False

    def _materialize(self, value: Value) -> None:
        make = self._deferred.pop(value, None)
        if make is not None:
            self.alias(value, identity(len(value.shape)), make())

    def orders(self, value: Value) -> list[Order]:
        self._materialize(value)
        return super().orders(value)

    def get(self, value: Value, order: Order | None = None) -> Value:
        self._materialize(value)
        return super().get(value, order)


def flatten_permutation(x: Value, out: Value, stored_order: Order | None) -> Array | None:
    """The column permutation if ``out`` is ``x`` with its last dimensions flattened in ``stored_order``.

    None if it is not, or if the permutation is the identity.
    """
    outer = len(out.shape) - 1
    if stored_order is None or outer < 1 or out.bound[:-1] != x.bound[:outer] or len(x.shape) <= len(out.shape):
        return None
    if stored_order == identity(len(stored_order)) or stored_order[:outer] != identity(outer):
        return None
    indices = np.arange(out.bound[-1]).reshape(x.bound[outer:])
    return indices.transpose([d - outer for d in stored_order[outer:]]).ravel()
