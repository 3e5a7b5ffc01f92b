"""Vendors' integer pools and reductions: which elements reduce to a result, and how it is requantized.

Each vendor divides and rounds differently: TFLite's AVERAGE_POOL_2D adds half the count and truncates, its MEAN uses a
fixed-point multiplier with two roundings (gemmlowp's SaturatingRoundingDoublingHighMul, then a rounding shift), XNNPACK
multiplies in float32 and rounds to nearest even, TOSA multiplies by a reciprocal with one rounding. ``reduce_epilogue``
registers each as published by the vendor's reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edgewright.backends.ethos_u.dialect.conv_pool import reciprocal_scale
from edgewright.backends.nxp.dialect.execute import overrides
from edgewright.backends.nxp.dialect.fixed_point_math import mean_multiplier, single_rounding_factor
from edgewright.backends.nxp.dialect.rounding import scale, zero_point
from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.fixed_point import make_rescale as scale_by
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.engine.dialects.elementwise import dtype_range
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics

ReduceEpilogue = Callable[[RangedIntBuilder, Op, RangedInt, list[Reg]], RangedInt]
REDUCE_EPILOGUES: dict[str, ReduceEpilogue] = {}


@dataclass(frozen=True)
class IntReduction:
    """A reduction of ``data`` over image windows or over ``axes``. ``extras``: int32 constants per result."""

    data: Value
    kind: str  # sum, max or min
    axes: tuple[int, ...] = ()
    keepdims: bool = True
    window: tuple[int, ...] | None = None
    stride: tuple[int, ...] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # above, below, left, right
    zero: int = 0  # value of padding
    extras: tuple[Value, ...] = field(default=())

    @property
    def count(self) -> int:
        """Elements per result."""
        return math.prod(self.window or (self.data.bound[a] for a in self.axes))


REDUCTIONS: dict[str, Callable[[Op], IntReduction]] = {}  # registered by dialects with their own windows


def reduce_epilogue(*kinds: str) -> Callable[[ReduceEpilogue], ReduceEpilogue]:
    """Register the requantization of operators of these kinds."""

    def register(epilogue: ReduceEpilogue) -> ReduceEpilogue:
        for kind in kinds:
            REDUCE_EPILOGUES[kind] = epilogue
        return epilogue

    return register


def find_epilogue(op: Op, numerics: Numerics) -> ReduceEpilogue | None:
    """The requantization under these numerics, or None if it is not supported."""
    if op.kind.startswith("tflite.") and op.kind.removeprefix("tflite.") in overrides(numerics.name):
        return REDUCE_EPILOGUES.get(f"{op.kind} {numerics.name}")
    return REDUCE_EPILOGUES.get(op.kind)


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def int_reduction(op: Op) -> IntReduction:
    """The reduction of an operator in ``REDUCE_EPILOGUES``; raises if its sizes are inconsistent."""
    if op.kind in REDUCTIONS:
        return REDUCTIONS[op.kind](op)
    name = op.kind.partition(".")[2]
    if name in ("AVERAGE_POOL_2D", "avg_pool2d", "max_pool2d"):
        return _pool(op)
    data = op.args["inputs"][0] if "inputs" in op.args else op.args["input"]
    enn_axes = op.args["axis"] if isinstance(op.args.get("axis"), list) else None  # ENN's
    axis_values = enn_axes or (np.atleast_1d(op.args["inputs"][1].data) if "inputs" in op.args else [op.args["axis"]])
    axes = tuple(sorted({int(a) % max(len(data.bound), 1) for a in axis_values}))
    keepdims = bool(op.args.get("keep_dims", True))
    shape = tuple(1 if d in axes else n for d, n in enumerate(data.bound) if keepdims or d not in axes)
    if shape != _result(op).bound or not axes or 0 in data.bound or any(int(a) >= len(data.bound) for a in axis_values):
        raise IntRangeError("output shape mismatch")
    kind = "max" if name in ("REDUCE_MAX", "reduce_max", "reduce_any") else "min"
    return IntReduction(
        data, "sum" if name in ("MEAN", "SUM", "reduce_sum", "REDUCEMEAN", "REDUCESUM") else kind, axes, keepdims
    )


def _pool(op: Op) -> IntReduction:
    out = _result(op).bound
    if op.kind.startswith("tflite."):
        data, pads, input_zp = op.args["inputs"][0], (0, 0, 0, 0), 0
        high, wide, stride_h, stride_w = (int(op.args[n]) for n in ("filter_h", "filter_w", "stride_h", "stride_w"))
    else:
        data, input_zp = op.args["input"], int(op.args.get("input_zp", 0))
        (high, wide), (stride_h, stride_w) = ([int(n) for n in op.args[name]] for name in ("kernel", "stride"))
        top, bottom, left, right = (int(n) for n in op.args["pad"])
        pads = (top, bottom, left, right)
    if len(data.bound) != 4 or len(out) != 4 or min(high, wide, stride_h, stride_w, *out) < 1 or min(pads) < 0:
        raise IntRangeError("not an image")
    if (data.bound[0], data.bound[3]) != (out[0], out[3]):
        raise IntRangeError("batch or channels differ")
    for n, out_size, k, s, a, b in ((data.bound[1], out[1], high, stride_h, *pads[:2]),
                                (data.bound[2], out[2], wide, stride_w, *pads[2:])):  # fmt: skip
        if max(a, b) >= k or (n + a + b - k) // s + 1 != out_size or k > n + a + b:
            raise IntRangeError("window does not match the output shape")
    if op.kind.endswith("max_pool2d"):
        if any(pads):
            raise IntRangeError("padded max pool")
        return IntReduction(data, "max", (), True, (high, wide), (stride_h, stride_w))
    extras = () if op.kind.startswith("tflite.") else _reciprocal_constants(op, data, (high, wide))
    return IntReduction(data, "sum", (), True, (high, wide), (stride_h, stride_w), pads, input_zp, extras)


def _reciprocal_constants(op: Op, data: Value, window: tuple[int, int]) -> tuple[Value, ...]:
    """Multiplier and shift per output pixel that divide by the number of window elements inside the image."""
    counts: Array = np.ones((1, 1, 1, 1), np.int64)
    for axis, (k, s) in enumerate(zip(window, op.args["stride"], strict=True)):
        starts = np.arange(_result(op).bound[1 + axis]) * int(s) - int(op.args["pad"][2 * axis])
        inside = np.minimum(starts + k, data.bound[1 + axis]) - np.maximum(starts, 0)
        counts = counts * inside.reshape((1, -1, 1, 1) if axis == 0 else (1, 1, -1, 1))
    return tuple(Value(name, np.dtype(np.int32), counts.shape, (0, 1, 2, 3), numbers.astype(np.int32)) for name, numbers
                 in zip(("multiplier", "shift"), reciprocal_scale(counts), strict=True))  # fmt: skip


# --------------------------------------------------------------------------------------------------------- results


@reduce_epilogue("tflite.AVERAGE_POOL_2D")
def _average(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    """Round half away from zero: add half the count with the sum's sign, then truncate."""
    count = int(op.args["filter_h"]) * int(op.args["filter_w"])
    negative = i.compare("slt", total, i.constant(0))
    rounded = i.add(total, i.select(negative, i.constant(-(count // 2)), i.constant(count // 2)))
    return RangedInt(i.f.op("sdiv", rounded.reg, count), -128, 127)


@reduce_epilogue("tflite.MEAN")
def _mean(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    fold, x, out = int_reduction(op), op.args["inputs"][0], _result(op)
    mantissa, exponent = mean_multiplier(float(np.float64(scale(x)) / np.float64(scale(out))), fold.count)
    centered = i.plus(total, -zero_point(x) * fold.count)
    return i.clamp(i.plus(i.rescale(centered, mantissa, 31 - exponent, "twice"), zero_point(out)), -128, 127)


@reduce_epilogue("tflite.MEAN xnnpack", "tflite.SUM xnnpack")
def _nearest(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    """XNNPACK: multiply in float32, round to nearest even."""
    factor, start = single_rounding_factor(op, int_reduction(op).count)
    f, floats = i.f, to_float32(i.f, total.reg)
    scaled = f.op("fadd", f.op("fmul", floats, const(float(factor), floats.type)), const(float(start), floats.type))
    return RangedInt(round_to_int(f, clamp(f, scaled, -128, 127)), -128, 127)


@reduce_epilogue("tflite.SUM")
def _real_sum(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    """TFLite's reference SUM: float32, round half away from zero."""
    x, out, f = op.args["inputs"][0], _result(op), i.f
    factor = scale(x) / scale(out)
    start = np.float32(-zero_point(x)) * factor * np.float32(int_reduction(op).count)
    floats = to_float32(f, total.reg)
    scaled = f.op("fadd", f.op("fmul", floats, const(float(factor), floats.type)), const(float(start), floats.type))
    clamped = clamp(f, scaled, -512, 512)  # outside int8 for any zero point
    truncated = f.cast("fptosi", clamped, total.reg.type)
    fraction = f.op("fsub", clamped, to_float32(f, truncated))  # exact
    up, down = (f.cast("zext", f.compare(predicate, fraction, const(tie, fraction.type)), total.reg.type)
                for predicate, tie in (("oge", 0.5), ("ole", -0.5)))  # fmt: skip
    rounded = f.op("sub", f.op("add", truncated, up), down)
    return i.clamp(i.plus(RangedInt(rounded, -513, 513), zero_point(out)), -128, 127)


@reduce_epilogue("tflite.REDUCE_MAX", "tflite.REDUCE_MIN", "tosa.reduce_max", "tosa.reduce_min", "tosa.reduce_any",
        "tosa.reduce_all", "tosa.max_pool2d")  # fmt: skip
def _extreme(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    return total


@reduce_epilogue("tosa.reduce_sum")
def _sum(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    return total


@reduce_epilogue("tosa.avg_pool2d")
def _tosa_average(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    out = _result(op)
    window = int(np.prod(op.args["kernel"]))
    centered = i.plus(total, -int(op.args["input_zp"]) * window)
    scaled = RangedInt(
        scale_by(i.f, "single", extras[0], extras[1], False)(i.narrow(centered).reg), -(1 << 16), 1 << 16
    )
    return i.clamp(i.plus(scaled, int(op.args["output_zp"])), *dtype_range(out))
