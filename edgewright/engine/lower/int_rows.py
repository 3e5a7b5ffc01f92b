"""Softmax and norms of quantized rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgewright.engine.codegen.requant import Affine, scale_of, storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, plan_loops
from edgewright.engine.kernels.int_rows import (
    Int8SoftmaxSpec,
    IntNormSpec,
    IntSoftmaxSpec,
    QuantizedStorage,
    emit_int8_softmax,
    emit_int_norm,
    emit_int_softmax,
)
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.plan import Address
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_rows import exp_table, log_of_table_unit, norm_fits_int64
from edgewright.ir.int_rules import FixedPointSoftmax

# --------------------------------------------------------------------------------------------------------- int8 softmax

# int8 softmax in fixed point.

_MAX_INT8_LENGTH = 4095  # elements of a row, so that the sum of exponentials fits in 31 bits


class Int8Softmax(DescribedLowering):
    """Softmax along the last dimension."""

    def __init__(self, node: Node, softmax: FixedPointSoftmax) -> None:
        super().__init__(node)
        self.softmax = softmax

    @classmethod
    def accept_description(cls, node: Node, description: FixedPointSoftmax) -> Lowering | None:
        x, out = description.data, node.out
        signed = all(is_quantized8(v.q) and v.dtype == np.dtype(np.int8) for v in (x, out))
        supported = signed and x.bound == out.bound and x.bound and 0 < x.bound[-1] <= _MAX_INT8_LENGTH
        return cls(node, description) if supported else None

    def emit(self, context: LoweringContext) -> None:
        storages = [context.storage(v) for v in (self.softmax.data, self.node.out)]
        shape = [*storages[0].layout.shape[:-1], 1]
        operands = [LoopOperand("i8", 1, (*h.layout.strides[:-1], 0)) for h in storages]
        tables = [context.weights.add(t.astype(np.int32)) for t in (self.softmax.exps, self.softmax.summands)]
        lanes, length = context.isa.lanes, storages[0].layout.shape[-1]
        for loops, (in_offset, out_offset) in plan_loops(shape, operands):
            rows = Int8SoftmaxSpec(loops, length)
            name = context.kernel("softmax_int8", rows, lambda m, n, rows=rows: emit_int8_softmax(m, n, lanes, rows))  # type: ignore[misc]
            slots = [storages[0].at(in_offset), *tables, storages[1].at(out_offset)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 2.0)


# ------------------------------------------------------------------------------------------------------------- int rows

# Softmax and norms of quantized rows with exact integer sums.

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
    """int_softmax: softmax and log_softmax along the last dimension."""

    exact_reads = True

    def __init__(self, node: Node, storages: tuple[QuantizedStorage, QuantizedStorage]) -> None:
        super().__init__(node)
        self.storages = storages
        self.table = exp_table(node.op.args["self"], node.out.bound[-1])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not is_unfused(node, "core.int_softmax"):
            return None
        x = node.op.args["self"]
        source, target = _storage(x), _storage(node.out)
        if source is None or target is None or x.constant or not x.bound:
            return None
        supported = x.bound == node.out.bound and 0 < x.bound[-1] <= _MAX_LENGTH
        return cls(node, (source, target)) if supported else None

    def emit(self, context: LoweringContext) -> None:
        lanes, length = context.isa.lanes, self.node.out.bound[-1]
        storages = [context.storage(v) for v in (self.node.op.args["self"], self.node.out)]
        table = context.weights.add(self.table.astype(np.int32))
        log_one = log_of_table_unit(self.table) if self.node.op.args["log"] else None
        for loops, offsets in _row_loops(storages):
            rows = IntSoftmaxSpec(loops, length, *self.storages, log_one)
            name = context.kernel("int_softmax", rows, lambda m, n, rows=rows: emit_int_softmax(m, n, lanes, rows))  # type: ignore[misc]
            slots = [*(h.at(n) for h, n in zip(storages, offsets, strict=True)), table]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 2.0)


class IntNorm(Lowering):
    """int_norm over the last dimension."""

    exact_reads = True

    def __init__(self, node: Node, norm: IntNormSpec) -> None:
        super().__init__(node)
        self.norm = norm

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        norm = _norm_spec(node)
        by_rows = norm is not None and norm.length == node.out.bound[-1] and norm.channel_size == 1
        return cls(node, norm) if norm is not None and by_rows else None

    def emit(self, context: LoweringContext) -> None:
        storages, lanes = self._storages(context), context.isa.lanes
        for loops, offsets in _row_loops(storages):
            norm = replace(self.norm, loops=loops)
            name = context.kernel("int_norm", norm, lambda m, name, norm=norm: emit_int_norm(m, name, lanes, norm))  # type: ignore[misc]
            slots = [*(h.at(n) for h, n in zip(storages, offsets, strict=True)), *self._weights_and_bias(context)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * norm.length)

    def _storages(self, context: LoweringContext) -> list[Storage]:
        return [context.storage(v) for v in (self.node.op.args["self"], self.node.out)]

    def _weights_and_bias(self, context: LoweringContext) -> list[Address]:
        """Locations of weight and bias; the same one twice if there is no bias."""
        arrays = [np.ascontiguousarray(np.ravel(np.asarray(v.data)), np.float32) for v in _factors(self.node.op)]
        return [context.weights.add(arrays[0]), context.weights.add(arrays[-1])]


class DenseIntNorm(IntNorm):
    """int_norm over several dimensions or over groups of channels."""

    any_strides = False
    requires_dense = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        norm = _norm_spec(node)
        return None if norm is None else cls(node, norm)

    def emit(self, context: LoweringContext) -> None:
        norm, lanes, storages = self.norm, context.isa.lanes, self._storages(context)
        name = context.kernel("int_norm", norm, lambda module, name: emit_int_norm(module, name, lanes, norm))
        rows = math.prod(self.node.out.bound) // norm.length
        slots = [*(h.at() for h in storages), *self._weights_and_bias(context)]
        context.step(name, slots, rows, rows * norm.length)


def _factors(op: Op) -> list[Value]:
    """Weight and bias, as far as there are any."""
    return [v for v in (op.args["weight"], op.args["bias"]) if v is not None]


def _norm_spec(node: Node) -> IntNormSpec | None:
    if not is_unfused(node, "core.int_norm"):
        return None
    args, factors = node.op.args, _factors(node.op)
    x, length, channel_size, groups = args["self"], args["length"], args["channel_size"], args["groups"]
    source, target = _storage(x), _storage(node.out)
    if source is None or target is None or x.constant or any(v.data is None for v in factors):
        return None
    if x.bound != node.out.bound or length < 1 or channel_size < 1 or not norm_fits_int64(x, length):
        return None
    if any(math.prod(v.bound) != length // channel_size * groups for v in factors):
        return None
    has_bias = len(factors) > 1
    return IntNormSpec(None, length, source, target, args["epsilon"], args["center"], has_bias, channel_size, groups)
