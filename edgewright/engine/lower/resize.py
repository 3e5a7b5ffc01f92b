"""Resizing, and softmax."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.requant import affine_of, limits_of
from edgewright.engine.graph.nodes import Node, byte, limits, single
from edgewright.engine.kernels.resize import Resize, emit_resize, table
from edgewright.engine.kernels.softmax import emit_softmax
from edgewright.engine.lower.base import Context, Dense, Lowering, only
from edgewright.ir.aten.reference.windows import cheaper_first
from edgewright.ir.graph import Array


class Bilinear(Lowering):
    """upsample_bilinear2d."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        if node.op.kind != "upsample_bilinear2d" or len(node.ops) > 1 or node.out.bound[0] > 1024:
            return None
        x = node.op.args["input"]
        return cls(node) if (single(x) and single(node.out)) or (byte(x.q) and byte(node.out.q)) else None

    def emit(self, context: Context) -> None:
        op, node = self.node.op, self.node
        x = op.args["input"]
        data, out = context.home(x), context.home(node.out)
        batch, high, wide, channels = (int(n) for n in node.out.bound)
        sizes = (int(x.bound[1]), int(x.bound[2]))
        given, made = (None if v.q is None else affine_of(v.q) for v in (x, node.out))
        bounds = (0, 255) if node.out.q is None else limits_of(context.numerics, node.out.q, op.args.get("limits"))
        tail = limits(op) if node.out.q is None else ()
        resize = Resize(data.layout.item, wide, channels, out.layout.row, out.layout.pixel,
                        cheaper_first(sizes, (high, wide))[0] == -1, tail, given, made, *bounds)  # fmt: skip
        lanes = context.isa.lanes
        name = context.kernel("resize", resize, lambda module, name: emit_resize(module, name, lanes, resize))
        tables = [
            context.weights.add(table(*taps(size, count, op.args["align_corners"]), step))
            for size, count, step in zip(sizes, (high, wide), (data.layout.row, data.layout.pixel), strict=True)
        ]
        for n in range(batch):
            slots = [data.at(n * data.layout.image), out.at(n * out.layout.image), *tables]
            context.step(name, slots, high, high * wide * channels * 0.4)


def taps(size: int, count: int, align: bool) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Where the two inputs of each output are along a dimension, and their weights, in single precision."""
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if align else size / count
    positions, step = np.arange(count, dtype=np.float32), np.float32(ratio)
    half = np.float32(0.5)
    at = positions * step if align else np.maximum((positions + half) * step - half, np.float32(0))
    lower = np.clip(at, 0, size - 1).astype(np.int64)
    part = np.clip(at - lower, 0, 1).astype(np.float32)
    return (lower, np.minimum(lower + 1, size - 1)), (np.float32(1) - part, part)


class Softmax(Dense):
    """softmax along the last dimension."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        if not only(node, "softmax") or not node.out.bound:
            return None
        return cls(node) if single(node.op.args["self"]) and single(node.out) else None

    def emit(self, context: Context) -> None:
        data, out = context.home(self.node.op.args["self"]), context.home(self.node.out)
        length, lanes = out.layout.shape[-1], context.isa.lanes
        assert data.layout.dense and out.layout.dense
        name = context.kernel("softmax", length, lambda module, name: emit_softmax(module, name, lanes, length))
        rows = math.prod(out.layout.shape[:-1])
        context.step(name, [data.at(), out.at()], rows, rows * length * 2.0)
