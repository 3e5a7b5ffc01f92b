"""Gather and scatter of rows by run-time indices: embedding, index_select, index_put into a cache.

Out-of-range indices that the model's author must hear of raise: a separate step checks the indices first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.gather import RowGatherSpec, emit_index_check, emit_row_gather, emit_row_scatter
from edgewright.engine.lower.base import DenseLowering, DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.engine.lower.static_gather import same_storage
from edgewright.engine.plan import Address, BoundsCheck
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_rules import BatchedGather, BatchedScatter

_INDEX_TYPES = (np.dtype(np.int64), np.dtype(np.int32))
_NANOSECONDS = 5.0  # per row, plus a hundredth of it per byte


def _single_index(op: Op) -> tuple[Value, int, Value] | None:
    """The tensor, the dimension and the indices of an operator that indexes one dimension."""
    if op.kind == "core.embedding":
        return op.args["weight"], 0, op.args["indices"]
    if op.kind == "core.index_select":
        data = op.args["self"]
        return data, int(op.args["dim"]) % max(len(data.bound), 1), op.args["index"]
    if op.kind not in ("core.index", "core.index_put"):
        return None
    indexed = [(d, v) for d, v in enumerate(op.args["indices"]) if v is not None]
    return (op.args["self"], *indexed[0]) if len(indexed) == 1 else None


def _gather_spec(op: Op) -> tuple[Value, Value, RowGatherSpec] | None:
    operands = _single_index(op)
    if operands is None:
        return None
    data, dim, index = operands
    shape = [int(n) for n in data.bound]
    supported = (data.q is None or data.q.axis is None) and index.q is None and index.dtype in _INDEX_TYPES
    if not supported or dim >= len(shape) or data.dtype is None or index.dtype is None:
        return None
    run, item = math.prod(shape[dim + 1 :]) * data.dtype.itemsize, index.dtype.itemsize
    outer, size, count = math.prod(shape[:dim]), shape[dim], math.prod(int(n) for n in index.bound)
    skip_outside = op.kind == "core.index_put" and isinstance(op.args.get("outside"), OutOfRangePolicy)
    strides = ((size * run, run), (count * run, run), (0, item))
    return data, index, RowGatherSpec(outer, size, count, run, item, *strides, skip_outside)


def _emit_bounds_check(
    context: LoweringContext, outside: OutOfRangePolicy | None, indices: Storage, spec: RowGatherSpec
) -> None:
    """Emit a check of the indices, if out-of-range ones are an error."""
    if outside is None or not outside.subject:
        return
    context.checks.append(BoundsCheck(outside, spec.size))
    min_index, (row_stride, step), item = outside.min_index(spec.size), spec.index_strides, spec.item
    name = context.kernel("bounds_check", item, lambda module, name: emit_index_check(module, name, item))
    row_count = spec.outer if row_stride else 1
    check_args = (spec.count, row_stride, step, min_index, spec.size - min_index, len(context.checks))
    context.step(
        name, [indices.at(), Address("arena", context.error_slot), *check_args], row_count, row_count * spec.count * 1.0
    )


def _emit_rows(
    context: LoweringContext, storages: tuple[Storage, Storage, Storage], spec: RowGatherSpec, emit: Callable[..., None]
) -> None:
    """Emit the gather or scatter; ``storages``: tensor, indices and rows, in the order of the kernel's slots."""

    def build(module: Module, name: str) -> None:
        emit(module, name, *spec.code)

    is_gather = emit is emit_row_gather
    name = context.kernel("row_gather" if is_gather else "row_scatter", spec.code, build)
    work = spec.outer * spec.count * (_NANOSECONDS + spec.run * _NANOSECONDS / 100)
    units = spec.outer * spec.count if is_gather else spec.outer
    context.step(name, [*(h.at() for h in storages), *spec.numbers], units, work)


class RowGather(DenseLowering):
    """embedding, index_select, and index with one index tensor."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        operands = (
            _gather_spec(node.op) if is_unfused(node, "core.embedding", "core.index_select", "core.index") else None
        )
        supported = operands is not None and operands[0].dtype == node.out.dtype and operands[0].q == node.out.q
        return cls(node) if supported else None

    def emit(self, context: LoweringContext) -> None:
        operands = _gather_spec(self.node.op)
        assert operands is not None
        data, index, spec = operands
        _emit_bounds_check(context, self.node.op.args.get("outside"), context.storage(index), spec)
        _emit_rows(
            context,
            (context.storage(data), context.storage(index), context.storage(self.node.out)),
            spec,
            emit_row_gather,
        )


class RowScatter(DenseLowering):
    """index_put with one index tensor: copies the tensor, unless it is updated in place, then overwrites rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        operands = _gather_spec(op) if is_unfused(node, "core.index_put") and not op.args.get("accumulate") else None
        if operands is None:
            return None
        data, _, spec = operands
        values: Value = op.args["values"]
        same_dtype = values.q is None and data.q is None and values.dtype == data.dtype == node.out.dtype
        size = math.prod(int(n) for n in values.bound) * (values.dtype.itemsize if values.dtype is not None else 0)
        return cls(node) if same_dtype and size == spec.outer * spec.count * spec.run else None

    def emit(self, context: LoweringContext) -> None:
        operands, out = _gather_spec(self.node.op), context.storage(self.node.out)
        assert operands is not None
        data, index, spec = operands
        if context.storage(data).address != out.address:
            emit_copy(context, context.storage(data), out)
            context.barrier = True
        _emit_rows(
            context, (context.storage(self.node.op.args["values"]), context.storage(index), out), spec, emit_row_scatter
        )


class _BatchedRows(DescribedLowering):
    """Gather and scatter of ``[batch, size, channels]`` values by ``[batch, count]`` indices."""

    @property
    def out_of_range(self) -> OutOfRangePolicy:
        return OutOfRangePolicy(f"{self.node.op.name} {self.node.out.name!r}", wrap=True)

    @staticmethod
    def gather_spec(values: Storage, rows: Storage, indices: Storage) -> RowGatherSpec:
        batch, size, channels = values.layout.shape
        count, run = rows.layout.shape[1], channels * values.layout.item
        (batch_stride, size_stride, _), (row_batch, row_stride, _), (index_batch, step) = (
            h.layout.strides for h in (values, rows, indices)
        )
        return RowGatherSpec(
            batch,
            size,
            count,
            run,
            indices.layout.item,
            (batch_stride, size_stride),
            (row_batch, row_stride),
            (index_batch, step),
        )

    @staticmethod
    def fits(values: Value, rows: Value, indices: Value) -> bool:
        ranks = (len(values.bound), len(rows.bound), len(indices.bound)) == (3, 3, 2)
        if not ranks or indices.dtype != np.dtype(np.int32) or not same_storage(values, rows):
            return False
        (batch, size, channels), (count, length) = values.bound, indices.bound
        return rows.bound == (batch, length, channels) and count == batch and 0 not in (batch, size, channels, length)


class BatchedRowGather(_BatchedRows):
    """gather."""

    def __init__(self, node: Node, gather: BatchedGather) -> None:
        super().__init__(node)
        self.gather = gather

    @classmethod
    def accept_description(cls, node: Node, description: BatchedGather) -> Lowering | None:
        fits = cls.fits(description.values, node.out, description.indices)
        return cls(node, description) if fits else None

    def emit(self, context: LoweringContext) -> None:
        operands = (self.gather.values, self.gather.indices, self.node.out)
        values, indices, rows = (context.storage(v) for v in operands)
        spec = self.gather_spec(values, rows, indices)
        _emit_bounds_check(context, self.out_of_range, indices, spec)
        _emit_rows(context, (values, indices, rows), spec, emit_row_gather)


class BatchedRowScatter(_BatchedRows):
    """scatter: copies the values, then overwrites rows."""

    def __init__(self, node: Node, scatter: BatchedScatter) -> None:
        super().__init__(node)
        self.scatter = scatter

    @classmethod
    def accept_description(cls, node: Node, description: BatchedScatter) -> Lowering | None:
        values = description.values
        same = same_storage(values, node.out) and values.bound == node.out.bound
        return cls(node, description) if same and cls.fits(values, description.rows, description.indices) else None

    def emit(self, context: LoweringContext) -> None:
        out = context.storage(self.node.out)
        emit_copy(context, context.storage(self.scatter.values), out)
        context.barrier = True
        rows, indices = context.storage(self.scatter.rows), context.storage(self.scatter.indices)
        spec = self.gather_spec(out, rows, indices)
        _emit_bounds_check(context, self.out_of_range, indices, spec)
        _emit_rows(context, (rows, indices, out), spec, emit_row_scatter)
