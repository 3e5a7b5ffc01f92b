"""ENN's integer softmax and norms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgewright.backends.samsung.dialect.numerics import constant_float, inputs_of
from edgewright.engine.codegen.requant import Affine, scale_of, storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, plan_loops
from edgewright.engine.kernels.int_rows import IntNormSpec, IntSoftmaxSpec, QuantizedStorage, emit_norm, emit_softmax
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.plan import Address
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_rows import exp_table, log_of_table_unit, norm_fits_int64

_MAX_LENGTH = 1 << 20  # elements of a row, so that exponentials keep enough bits


def _storage(value: Value) -> QuantizedStorage | None:
    """How a value's integers are stored; None if not supported."""
    q = value.q
    if q is None or q.axis is not None or q.dtype != value.dtype or q.dtype.itemsize > 2:
        return None
    affine = Affine(float(scale_of(q)), int(np.asarray(q.zero_point)))
    return QuantizedStorage(8 * q.dtype.itemsize, q.dtype.kind == "i", storage_offset(q), affine, q.qmin, q.qmax)


def _row_loops(storages: list[Storage]) -> list[tuple[LoopNest, tuple[int, ...]]]:
    """Loops over rows with any strides between them."""
    shape = [*storages[0].layout.shape[:-1], 1]
    return plan_loops(
        shape, [LoopOperand(f"i{8 * h.layout.item}", h.layout.item, (*h.layout.strides[:-1], 0)) for h in storages]
    )


class IntSoftmax(Lowering):
    """softmax and log_softmax along the last dimension."""

    exact_reads = True

    def __init__(self, node: Node, storages: tuple[QuantizedStorage, QuantizedStorage]) -> None:
        super().__init__(node)
        self.storages = storages
        self.table = exp_table(inputs_of(node.op)[0], node.out.bound[-1])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in ("enn.SOFTMAX", "enn.LOGSOFTMAX") or len(node.ops) > 1:
            return None
        x = inputs_of(node.op)[0]
        source, target, rank = _storage(x), _storage(node.out), len(x.bound)
        if source is None or target is None or int(node.op.args["axis"]) % max(rank, 1) != rank - 1 or x.constant:
            return None
        return cls(node, (source, target)) if x.bound == node.out.bound and 0 < x.bound[-1] <= _MAX_LENGTH else None

    def emit(self, context: LoweringContext) -> None:
        lanes, length = context.isa.lanes, self.node.out.bound[-1]
        storages = [context.storage(v) for v in (inputs_of(self.node.op)[0], self.node.out)]
        table = context.weights.add(self.table.astype(np.int32))
        log_one = log_of_table_unit(self.table) if self.node.op.kind.endswith("LOGSOFTMAX") else None
        for loops, offsets in _row_loops(storages):
            rows = IntSoftmaxSpec(loops, length, *self.storages, log_one)
            name = context.kernel("int_softmax", rows, lambda m, name, rows=rows: emit_softmax(m, name, lanes, rows))  # type: ignore[misc]
            slots = [*(h.at(n) for h, n in zip(storages, offsets, strict=True)), table]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 2.0)


class IntNorm(Lowering):
    """LAYERNORM, and RMSNORM over the last dimension."""

    exact_reads = True

    def __init__(self, node: Node, norm: IntNormSpec) -> None:
        super().__init__(node)
        self.norm = norm

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        norm = _norm_spec(node)
        return (
            cls(node, norm)
            if norm is not None and norm.length == node.out.bound[-1] and norm.channel_size == 1
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        storages, lanes = _storages(self.node, context), context.isa.lanes
        for loops, offsets in _row_loops(storages):
            norm = replace(self.norm, loops=loops)
            name = context.kernel("int_norm", norm, lambda m, name, norm=norm: emit_norm(m, name, lanes, norm))  # type: ignore[misc]
            slots = [*(h.at(n) for h, n in zip(storages, offsets, strict=True)), *_weights_and_bias(self.node, context)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * norm.length)


class DenseIntNorm(IntNorm):
    """GROUPNORM, and RMSNORM over several dimensions."""

    any_strides = False
    requires_dense = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        norm = _norm_spec(node)
        return None if norm is None else cls(node, norm)

    def emit(self, context: LoweringContext) -> None:
        norm, lanes, storages = self.norm, context.isa.lanes, _storages(self.node, context)
        name = context.kernel("int_norm", norm, lambda module, name: emit_norm(module, name, lanes, norm))
        rows = math.prod(self.node.out.bound) // norm.length
        slots = [*(h.at() for h in storages), *_weights_and_bias(self.node, context)]
        context.step(name, slots, rows, rows * norm.length)


def _storages(node: Node, context: LoweringContext) -> list[Storage]:
    return [context.storage(v) for v in (inputs_of(node.op)[0], node.out)]


def _weights_and_bias(node: Node, context: LoweringContext) -> list[Address]:
    """Locations of weight and bias; the same one twice if there is no bias."""
    arrays = [np.ascontiguousarray(constant_float(v).reshape(-1), np.float32) for v in inputs_of(node.op)[1:]]
    return [context.weights.add(arrays[0]), context.weights.add(arrays[-1])]


def _norm_spec(node: Node) -> IntNormSpec | None:
    if node.op.kind not in ("enn.LAYERNORM", "enn.GROUPNORM", "enn.RMSNORM") or len(node.ops) > 1:
        return None
    x, *factors = inputs_of(node.op)
    source, target = _storage(x), _storage(node.out)
    if source is None or target is None or x.constant or any(v.data is None for v in factors):
        return None
    length, channel_size, groups = _sizes(node.op, x)
    if x.bound != node.out.bound or length < 1 or channel_size < 1 or not norm_fits_int64(x, length):
        return None
    if any(math.prod(v.bound) != length // channel_size * groups for v in factors):
        return None
    center = not node.op.kind.endswith("RMSNORM")
    epsilon = float(node.op.args["epsilon"])
    return IntNormSpec(None, length, source, target, epsilon, center, len(factors) > 1, channel_size, groups)


def _sizes(op: Op, x: Value) -> tuple[int, int, int]:
    """The row length, the elements that share a weight, and the number of groups."""
    if op.kind.endswith("LAYERNORM"):
        return x.bound[-1], 1, 1
    if op.kind.endswith("RMSNORM"):
        return math.prod(int(n) for n in op.args["normalize_shape"]), 1, 1
    groups = int(op.args["num_groups"])
    channel_size = math.prod(x.bound[2:])
    return x.bound[1] // max(groups, 1) * channel_size, channel_size, groups
