"""Bilinear resize of NHWC images, float32 or int8; and separable resize, a weighted sum of neighbors along one
dimension."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.requant import affine_of, clamp_limits
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32, is_quantized8
from edgewright.engine.kernels.pool_resize import (
    ResizeSpec,
    SeparableFilterSpec,
    bilinear_table,
    emit_resize,
    emit_separable_filter,
)
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.ir.aten.reference.windows import cheaper_first
from edgewright.ir.graph import Array


class BilinearResize(Lowering):
    """upsample_bilinear2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.upsample_bilinear2d" or len(node.ops) > 1 or node.out.bound[0] > 1024:
            return None
        x = node.op.args["input"]
        return (
            cls(node)
            if (is_float32(x) and is_float32(node.out)) or (is_quantized8(x.q) and is_quantized8(node.out.q))
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        op, node = self.node.op, self.node
        x = op.args["input"]
        data, out = context.storage(x), context.storage(node.out)
        batch, high, wide, channels = (int(n) for n in node.out.bound)
        sizes = (int(x.bound[1]), int(x.bound[2]))
        in_affine, out_affine = (None if v.q is None else affine_of(v.q) for v in (x, node.out))
        clamp_range = (
            (0, 255) if node.out.q is None else clamp_limits(context.numerics, node.out.q, op.args.get("limits"))
        )
        epilogue = fused_clamp(op) if node.out.q is None else ()
        resize = ResizeSpec(data.layout.item, wide, channels, out.layout.row, out.layout.pixel,
                        cheaper_first(sizes, (high, wide))[0] == -1, epilogue, in_affine, out_affine,
                        *clamp_range)  # fmt: skip
        lanes = context.isa.lanes
        name = context.kernel("resize", resize, lambda module, name: emit_resize(module, name, lanes, resize))
        tables = [
            context.weights.add(bilinear_table(*bilinear_taps(size, count, op.args["align_corners"]), step))
            for size, count, step in zip(sizes, (high, wide), (data.layout.row, data.layout.pixel), strict=True)
        ]
        for n in range(batch):
            slots = [data.at(n * data.layout.image), out.at(n * out.layout.image), *tables]
            context.step(name, slots, high, high * wide * channels * 0.4)


def bilinear_taps(size: int, count: int, align: bool) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Indices of the two inputs of each output along a dimension, and their float32 weights."""
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if align else size / count
    positions, step = np.arange(count, dtype=np.float32), np.float32(ratio)
    half = np.float32(0.5)
    source_position = positions * step if align else np.maximum((positions + half) * step - half, np.float32(0))
    lower = np.clip(source_position, 0, size - 1).astype(np.int64)
    fraction = np.clip(source_position - lower, 0, 1).astype(np.float32)
    return (lower, np.minimum(lower + 1, size - 1)), (np.float32(1) - fraction, fraction)


class SeparableResize(DenseLowering):
    """Separable resize in float32."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if not is_unfused(node, "core.separable_resize"):
            return None
        return (
            cls(node) if is_float32(op.args["self"]) and is_float32(node.out) and not op.args["self"].constant else None
        )

    def emit(self, context: LoweringContext) -> None:
        op, lanes = self.node.op, context.isa.lanes
        data, out = context.storage(op.args["self"]), context.storage(self.node.out)
        shape, dim = data.layout.shape, int(op.args["dim"])
        starts, counts, weights = (np.asarray(op.args[name].data) for name in ("starts", "counts", "weights"))
        inner = math.prod(shape[dim + 1 :])
        bands = SeparableFilterSpec(shape[dim], inner, len(starts), weights.shape[1])
        name = context.kernel(
            "separable_resize", bands, lambda module, name: emit_separable_filter(module, name, bands, lanes)
        )
        tables = [np.ascontiguousarray(a) for a in (starts.astype(np.int32), counts.astype(np.int32), weights)]
        units = math.prod(shape[:dim]) * len(starts)
        slots = [data.at(), out.at(), *(context.weights.add(t) for t in tables)]
        work = math.prod(shape[:dim]) * inner * float(counts.sum())
        context.step(name, slots, units, work * (0.15 if inner >= lanes else 1.0))
