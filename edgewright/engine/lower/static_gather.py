"""Static gathers: repeat, flip, reflect, nearest resize and other rearrangements with indices known at compile time.

All of these read element ``sum(index[d][i_d])``: the source offset is a sum of one table entry per dimension. So a
table of offsets per dimension replaces one kernel per operator. ``source_indices`` gets the indices by running the
operator's reference on ``arange``, and ``separable_indices`` splits them into per-dimension tables, or reports that the
operator is not separable. Runs that are contiguous in source and target merge into one copy, and affine tables become
strided copies without a table.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.gather import StaticGatherSpec, emit_static_gather, offset_table
from edgewright.engine.lower.base import DenseLowering, DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_rules import IndexGather

_NANOSECONDS = 3.0  # per run, and per 16 bytes of it
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
    work = math.prod(shape) * _NANOSECONDS * (1 + run / 16)
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
