"""Gather and scatter of rows by run-time indices; gathers with indices known at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.gather import (
    RowGatherSpec,
    StaticGatherSpec,
    emit_index_check,
    emit_row_gather,
    emit_row_scatter,
    emit_static_gather,
    offset_table,
)
from edgewright.engine.lower.base import DenseLowering, DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.engine.plan import ROW_GATHER, Address, BoundsCheck
from edgewright.ir.aten.ops import OPS
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rules import BatchedGather, BatchedScatter, IndexGather

# ----------------------------------------------------------------------------------------------------------- row gather

# Gather and scatter of rows by run-time indices: embedding, index_select, index_put into a cache.
#
# Out-of-range indices that the model's author must hear of raise: a separate step checks the indices first.

_INDEX_TYPES = (np.dtype(np.int64), np.dtype(np.int32))
_ROW_NANOSECONDS = 5.0  # per row, plus a hundredth of it per byte


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
    name = context.kernel(ROW_GATHER if is_gather else "row_scatter", spec.code, build)
    work = spec.outer * spec.count * (_ROW_NANOSECONDS + spec.run * _ROW_NANOSECONDS / 100)
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


# -------------------------------------------------------------------------------------------------------- static gather

# Static gathers: repeat, flip, reflect, nearest resize and other rearrangements with indices known at compile time.
#
# All of these read element ``sum(index[d][i_d])``: the source offset is a sum of one table entry per dimension. So a
# table of offsets per dimension replaces one kernel per operator. ``source_indices`` gets the indices by running the
# operator's reference on ``arange``, and ``separable_indices`` splits them into per-dimension tables, or reports that
# the operator is not separable. Runs that are contiguous in source and target merge into one copy, and affine tables
# become strided copies without a table.

_RUN_NANOSECONDS = 3.0  # per run, and per 16 bytes of it
_MIN_UNIT_RUN = 64  # bytes from which a run is a unit of its own
GATHER_OPS = {
    "core.flip", "core.roll", "core.repeat", "core.as_strided", "core.unfold", "core.diagonal", "core.reflection_pad",
    "core.replication_pad", "core.pixel_shuffle", "core.pixel_unshuffle", "core.channel_shuffle",
    "core.upsample_nearest2d", "core.resize_nearest2d",
}  # fmt: skip


def same_storage(a: Value, b: Value) -> bool:
    """Whether both tensors store equal elements as the same bytes."""
    if a.dtype != b.dtype or (a.q is None) != (b.q is None) or a.dtype is None:
        return False
    return a.q is None or b.q is None or storage_offset(a.q) == storage_offset(b.q)


def _emit_gather(context: LoweringContext, data: Storage, out: Storage, tables: list[Array]) -> None:
    """Emit the gather. ``tables``: for each dimension of the result, byte offsets into ``data``."""
    dynamic = context.shared is not None  # then keep dimensions of size 1: the next call may have larger ones
    start = 0 if dynamic else sum(int(indices[0]) for indices in tables if len(indices) == 1)
    dims = [d for d, indices in enumerate(tables) if dynamic or len(indices) > 1]
    shape, strides = ([values[d] for d in dims] for values in (out.layout.shape, out.layout.strides))
    tables, run = [tables[d].astype(np.int64) for d in dims], out.layout.item
    while shape and (count := _mergeable_runs(tables[-1], run, strides[-1])):
        shape[-1], strides[-1], tables[-1], run = shape[-1] // count, run * count, tables[-1][::count], run * count
        if shape[-1] > 1:
            break
        start += int(tables.pop()[0])  # the entire row is contiguous on both sides
        del shape[-1], strides[-1]
    work = math.prod(shape) * _RUN_NANOSECONDS * (1 + run / 16)
    if len(shape) < 2 or run >= _MIN_UNIT_RUN:
        shape, strides, tables = [*shape, 1], [*strides, 0], [*tables, np.zeros(1, np.int64)]
    spec = (
        StaticGatherSpec(len(shape), run)
        if dynamic
        else StaticGatherSpec(len(shape), run, tuple(shape), tuple(strides))
    )
    name = context.kernel("static_gather", spec, lambda module, name: emit_static_gather(module, name, spec))
    packed_tables = context.weights.add(offset_table(shape, strides, tables))
    context.step(name, [data.at(start), out.at(), packed_tables], math.prod(shape[:-1]), work)


def _mergeable_runs(indices: Array, run: int, stride: int) -> int:
    """How many consecutive runs are contiguous in source and target for every row; 0 if only single runs are."""
    if len(indices) == 1:
        return 1
    breaks = np.flatnonzero(np.diff(indices) != run) + 1
    count = math.gcd(len(indices), *breaks.tolist()) if stride == run else 1
    return count if count > 1 else 0


class TableGather(DescribedLowering):
    """A gather of another dialect, by its indices."""

    def __init__(self, node: Node, description: IndexGather) -> None:
        super().__init__(node)
        self.data, self.tables = description.data, description.indices

    @classmethod
    def accept_description(cls, node: Node, description: IndexGather) -> Lowering | None:
        data, tables, out = description.data, description.indices, node.out
        if tuple(map(len, tables)) != out.bound or len(tables) != len(data.bound) or not out.bound or 0 in out.bound:
            return None
        inside = (int(t.min()) >= 0 and int(t.max()) < n for t, n in zip(tables, data.bound, strict=True))
        return cls(node, description) if same_storage(data, out) and all(inside) else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.data), context.storage(self.node.out)
        tables = [
            offsets.astype(np.int64) * step for offsets, step in zip(self.tables, data.layout.strides, strict=True)
        ]
        _emit_gather(context, data, out, tables)


def _data_operand(op: Op) -> Value:
    data: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return data


def source_indices(op: Op) -> Array:
    """For each element of the result the flat index of its source, from the reference applied to ``arange``."""
    shape = _data_operand(op).bound
    name = "input" if "input" in op.args else "self"
    positions: Any = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    args = {n: positions if n == name else v for n, v in op.args.items()}
    return np.asarray(OPS[op.name].call(args)[0], np.int64)


def separable_indices(flat: Array) -> list[Array] | None:
    """Split flat indices into a sum of one table per dimension; None if they are not separable.

    All tables but the first begin with 0.

    >>> separable_indices(np.array([[5, 4], [2, 1]]))
    [array([5, 2]), array([ 0, -1])]
    """
    tables = [flat[tuple(slice(None) if d == dim else 0 for d in range(flat.ndim))] for dim in range(flat.ndim)]
    tables = [*tables[:1], *(indices - indices[0] for indices in tables[1:])]
    total = np.zeros((), np.int64)
    for offsets in tables:
        total = np.add.outer(total, offsets)
    return tables if np.array_equal(total, flat) else None


class StaticGather(DenseLowering):
    """Core operators that only rearrange elements, as a strided copy if possible, else by tables."""

    def __init__(self, node: Node, tables: list[Array]) -> None:
        super().__init__(node)
        self.tables = tables

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, *GATHER_OPS) or not out.bound or 0 in out.bound:
            return None
        data = _data_operand(op)
        large = max(math.prod(v.bound) for v in (data, out))
        if data.q is not None or out.q is not None or data.dtype != out.dtype or data.constant:
            return None
        tables = None if 16 * large > context.memory else separable_indices(source_indices(op))
        return None if tables is None else cls(node, tables)

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(_data_operand(self.node.op)), context.storage(self.node.out)
        item = data.layout.item
        steps = [int(offsets[1] - offsets[0]) if len(offsets) > 1 else 0 for offsets in self.tables]
        if all(np.array_equal(g, g[0] + np.arange(len(g)) * s) for g, s in zip(self.tables, steps, strict=True)):
            layout = replace(data.layout, shape=out.layout.shape, strides=tuple(s * item for s in steps))
            start = sum(int(offsets[0]) for offsets in self.tables) * item
            emit_copy(context, replace(data, layout=layout, address=data.at(start)), out)
        else:
            _emit_gather(context, data, out, [offsets * item for offsets in self.tables])
