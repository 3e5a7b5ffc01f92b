"""Moves that the op table alone describes: what it does to the places of elements says where each comes from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.fuse import Node
from edgewright.engine.kernels.tabled import Tabled, emit_tabled
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.moves import copy
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.opset import OPS

MOVES = {
    "flip", "roll", "repeat", "as_strided", "unfold", "diagonal", "reflection_pad", "replication_pad", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "upsample_nearest2d", "resize_nearest2d",
}  # fmt: skip


def _data(op: Op) -> Value:
    data: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return data


def places(op: Op) -> Array:
    """For each element of the result, which of the operand's it is."""
    shape = _data(op).bound
    name = "input" if "input" in op.args else "self"
    counted: Any = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    given = {n: counted if n == name else v for n, v in op.args.items()}
    return np.asarray(OPS[op.kind].call(given)[0], np.int64)


def strides_of(table: Array) -> tuple[int, ...] | None:
    """Steps from element to element along each dimension, if they are the same everywhere."""
    start = int(table.flat[0])
    steps = tuple(int(table.take(1, d).flat[0]) - start if n > 1 else 0 for d, n in enumerate(table.shape))
    total = np.full((), start, np.int64)
    for d, step in enumerate(steps):
        total = np.add.outer(total, np.arange(table.shape[d]) * step) if d else start + np.arange(table.shape[0]) * step
    return steps if np.array_equal(total, table) else None


def run_of(table: Array) -> int:
    """How many elements lie side by side in both, wherever a row of so many begins."""
    for d in range(table.ndim):
        size: int = math.prod(table.shape[d:])
        rows = table.reshape(-1, size)
        if np.array_equal(rows, rows[:, :1] + np.arange(size)):
            return size
    return 1


class TabledMove(Lowering):
    """Copies with strides where there are some, else rows by a table."""

    exact_reads = True
    any_strides = False
    wants_dense = True

    def __init__(self, node: Node, table: Array) -> None:
        super().__init__(node)
        self.table = table

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op, out = node.op, node.out
        if op.kind not in MOVES or len(node.ops) > 1 or op.args.get("limits") is not None:
            return None
        data = _data(op)
        large = max(math.prod(v.bound) for v in (data, out))
        if data.q is not None or out.q is not None or data.dtype != out.dtype or data.constant:
            return None
        return None if large >= 1 << 31 or 16 * large > context.memory else cls(node, places(op))

    def emit(self, context: Context) -> None:
        data, out, table = context.home(_data(self.node.op)), context.home(self.node.out), self.table
        item, steps = data.layout.item, strides_of(table)
        if steps is not None:
            layout = replace(data.layout, shape=table.shape, strides=tuple(s * item for s in steps))
            copy(context, replace(data, layout=layout, place=data.at(int(table.flat[0]) * item)), out)
            return
        inner = run_of(table)
        tabled = Tabled(inner * item, item)
        name = context.kernel("tabled", tabled, lambda module, name: emit_tabled(module, name, tabled))
        starts = context.weights.add(np.ascontiguousarray(table.reshape(-1)[::inner].astype(np.int32)))
        rows = table.size // inner
        context.step(name, [data.at(), starts, out.at()], rows, rows * (2 + inner * item * 0.05))
