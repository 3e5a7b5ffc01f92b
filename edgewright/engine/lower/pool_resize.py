"""Pooling and resizing of images, float32 or int8."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.codegen.requant import affine_of, clamp_limits
from edgewright.engine.graph.layout import Layout
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32, is_quantized8
from edgewright.engine.kernels.pool_resize import (
    GlobalMeanSpec,
    PoolAxis,
    PoolSpec,
    ResizeSpec,
    SeparableFilterSpec,
    bilinear_table,
    emit_global_mean,
    emit_pool,
    emit_resize,
    emit_separable_filter,
)
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.ir.aten.reference.dims import cheaper_first
from edgewright.ir.graph import Array, Op, QParams
from edgewright.ir.numerics import Numerics

# ----------------------------------------------------------------------------------------------------------------- pool

# Max, average and global average pooling, float32 or int8.

_MAX_IMAGES = 1024  # each image is a step, so an untrusted file must not request millions


class Pool2d(Lowering):
    """max_pool2d and avg_pool2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind not in ("core.max_pool2d", "core.avg_pool2d") or len(node.ops) > 1 or node.op.outputs[1:]:
            return None
        if node.out.bound[0] > _MAX_IMAGES:
            return None
        x = op.args["self"]
        if not (is_float32(x) and is_float32(node.out)) and not (is_quantized8(x.q) and is_quantized8(node.out.q)):
            return None
        kernel, stride, dilation = (op.args.get(n) or [1, 1] for n in ("kernel_size", "stride", "dilation"))
        for i in (0, 1):
            windows = (
                x.bound[1 + i],
                node.out.bound[1 + i],
                kernel[i],
                stride[i],
                op.args["padding"][2 * i],
                dilation[i],
            )
            if not every_window_overlaps(*windows):
                return None
        return cls(node) if op.kind == "core.avg_pool2d" or x.q == node.out.q else None

    def emit(self, context: LoweringContext) -> None:
        op, node = self.node.op, self.node
        x, data, out = op.args["self"], context.storage(op.args["self"]), context.storage(node.out)
        batch, high, wide, channels = node.out.bound
        clamp_range = (
            (0, 255) if node.out.q is None else clamp_limits(context.numerics, node.out.q, op.args.get("limits"))
        )
        is_average = op.kind == "core.avg_pool2d"
        in_affine, out_affine = (affine_of(q) if is_average and q is not None else None for q in (x.q, node.out.q))
        epilogue = fused_clamp(op) if x.q is None else ()
        pool = PoolSpec("mean" if is_average else "max", data.layout.item, *_axes(op, data.layout), int(wide),
                    int(channels), out.layout.row, out.layout.pixel, epilogue, in_affine, out_affine,
                    *clamp_range)  # fmt: skip
        name = context.kernel("pool", pool, lambda module, name: emit_pool(module, name, context.isa, pool))
        taps = pool.high.kernel * pool.wide.kernel
        for n in range(int(batch)):
            slots = [data.at(n * data.layout.image), out.at(n * out.layout.image)]
            context.step(name, slots, int(high), int(high) * int(wide) * int(channels) * taps * 0.05)


def _axes(op: Op, layout: Layout) -> tuple[PoolAxis, PoolAxis]:
    kernel, stride = op.args["kernel_size"], op.args["stride"]
    dilation = op.args.get("dilation") or [1, 1]
    starts, steps = op.args["padding"][::2], (layout.row, layout.pixel)
    high, wide = (PoolAxis(int(layout.shape[1 + i]), int(kernel[i]), int(stride[i]), int(starts[i]), int(dilation[i]),
                       steps[i]) for i in (0, 1))  # fmt: skip
    return high, wide


def _mean_requant(numerics: Numerics, in_q: QParams, out_q: QParams, count: int) -> dict[str, Any]:
    """Parameters that requantize a sum of ``count`` integers to their mean, for internal (offset) int8 values."""
    steps, result = numerics.mean_steps(in_q, out_q, count), affine_of(out_q)
    return {"shift": steps.subtract + affine_of(in_q).shift * count, "factor": float(steps.factor),
            "offset": float(steps.offset), "out_affine": replace(result, zero=steps.zero + result.shift)}  # fmt: skip


class GlobalAvgPool(Lowering):
    """global_avg_pool2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.global_avg_pool2d" or node.residual is not None:
            return None
        x = node.op.args["self"]
        if x.bound[0] > _MAX_IMAGES:
            return None
        supported = (is_float32(x) and is_float32(node.out)) or (
            is_quantized8(x.q) and is_quantized8(node.out.q) and len(node.ops) == 1
        )
        return cls(node) if supported else None

    def emit(self, context: LoweringContext) -> None:
        op, node = self.node.op, self.node
        x, data, out = op.args["self"], context.storage(op.args["self"]), context.storage(node.out)
        batch, high, wide, channels = (int(n) for n in x.bound)
        block = context.isa.lanes * (4 if channels > 16 * context.isa.lanes else 1)
        sizes = (data.layout.item, high, wide, data.layout.row, data.layout.pixel, channels, block)
        if x.q is None or node.out.q is None:
            mean = GlobalMeanSpec(*sizes, fused_clamp(op) + node.epilogue)
        else:
            clamp_range = clamp_limits(context.numerics, node.out.q, op.args.get("limits"))
            steps = _mean_requant(context.numerics, x.q, node.out.q, high * wide)
            mean = GlobalMeanSpec(*sizes, low=clamp_range[0], top=clamp_range[1], **steps)
        name = context.kernel("mean", mean, lambda module, name: emit_global_mean(module, name, context.isa, mean))
        for n in range(batch):
            slots = [data.at(n * data.layout.image), out.at(n * out.layout.strides[0])]
            context.step(name, slots, -(-channels // block), high * wide * channels * 0.03)


def every_window_overlaps(size: int, windows: int, kernel: int, stride: int, padding: int, dilation: int) -> bool:
    """Whether every window along a dimension has a tap inside the image."""
    starts = np.arange(windows)[:, None] * stride - padding
    taps = starts + np.arange(kernel)[None, :] * dilation
    return bool(((taps >= 0) & (taps < size)).any(1).all())


# --------------------------------------------------------------------------------------------------------------- resize

# Bilinear resize of NHWC images, float32 or int8; and separable resize, a weighted sum of neighbors along one
# dimension.


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
