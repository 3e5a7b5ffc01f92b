"""Vendors' pools and reductions: which elements are folded, and how a result is made of what they give."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.fixed_point import make_rescale as scale_by
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.engine.dialects.elementwise import dtype_range
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.tflite.execute import named
from edgewright.ir.tflite.fixed_point_math import mean_factor, nearest_factor
from edgewright.ir.tflite.rounding import scale, zero
from edgewright.ir.tosa.conv_pool import reciprocals

ReduceEpilogue = Callable[[RangedIntBuilder, Op, RangedInt, list[Reg]], RangedInt]
REDUCE_EPILOGUES: dict[str, ReduceEpilogue] = {}


@dataclass(frozen=True)
class IntReduction:
    """``data`` folded over windows of an image, or over ``axes``. ``extras`` are 32-bit constants that results need."""

    data: Value
    how: str  # sum, max or min
    axes: tuple[int, ...] = ()
    keep: bool = True
    window: tuple[int, ...] | None = None
    stride: tuple[int, ...] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)  # above, below, left, right
    zero: int = 0  # what padding holds
    extras: tuple[Value, ...] = field(default=())

    @property
    def count(self) -> int:
        """Elements that make one."""
        return math.prod(self.window or (self.data.bound[a] for a in self.axes))


REDUCTIONS: dict[str, Callable[[Op], IntReduction]] = {}  # of dialects that say so themselves


def reduce_epilogue(*kinds: str) -> Callable[[ReduceEpilogue], ReduceEpilogue]:
    def register(made: ReduceEpilogue) -> ReduceEpilogue:
        for kind in kinds:
            REDUCE_EPILOGUES[kind] = made
        return made

    return register


def find_epilogue(op: Op, numerics: Numerics) -> ReduceEpilogue | None:
    """How results are made under these numerics, or None if nothing here does it."""
    if op.kind.startswith("tflite.") and op.kind.removeprefix("tflite.") in named(numerics.name):
        return REDUCE_EPILOGUES.get(f"{op.kind} {numerics.name}")
    return REDUCE_EPILOGUES.get(op.kind)


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def int_reduction(op: Op) -> IntReduction:
    """What an operator of ``FOLDS`` folds; raises if sizes are none that it can have."""
    if op.kind in REDUCTIONS:
        return REDUCTIONS[op.kind](op)
    name = op.kind.partition(".")[2]
    if name in ("AVERAGE_POOL_2D", "avg_pool2d", "max_pool2d"):
        return _pool(op)
    data = op.args["inputs"][0] if "inputs" in op.args else op.args["input"]
    listed = op.args["axis"] if isinstance(op.args.get("axis"), list) else None  # ENN's
    given = listed or (np.atleast_1d(op.args["inputs"][1].data) if "inputs" in op.args else [op.args["axis"]])
    axes = tuple(sorted({int(a) % max(len(data.bound), 1) for a in given}))
    keep = bool(op.args.get("keep_dims", True))
    shape = tuple(1 if d in axes else n for d, n in enumerate(data.bound) if keep or d not in axes)
    if shape != _result(op).bound or not axes or 0 in data.bound or any(int(a) >= len(data.bound) for a in given):
        raise IntRangeError("results are not as many")
    how = "max" if name in ("REDUCE_MAX", "reduce_max", "reduce_any") else "min"
    return IntReduction(
        data, "sum" if name in ("MEAN", "SUM", "reduce_sum", "REDUCEMEAN", "REDUCESUM") else how, axes, keep
    )


def _pool(op: Op) -> IntReduction:
    out = _result(op).bound
    if op.kind.startswith("tflite."):
        data, pads, origin = op.args["inputs"][0], (0, 0, 0, 0), 0
        high, wide, down, across = (int(op.args[n]) for n in ("filter_h", "filter_w", "stride_h", "stride_w"))
    else:
        data, origin = op.args["input"], int(op.args.get("input_zp", 0))
        (high, wide), (down, across) = ([int(n) for n in op.args[name]] for name in ("kernel", "stride"))
        top, bottom, left, right = (int(n) for n in op.args["pad"])
        pads = (top, bottom, left, right)
    if len(data.bound) != 4 or len(out) != 4 or min(high, wide, down, across, *out) < 1 or min(pads) < 0:
        raise IntRangeError("not an image")
    if (data.bound[0], data.bound[3]) != (out[0], out[3]):
        raise IntRangeError("other images than there are")
    for n, made, k, s, a, b in ((data.bound[1], out[1], high, down, *pads[:2]),
                                (data.bound[2], out[2], wide, across, *pads[2:])):  # fmt: skip
        if max(a, b) >= k or (n + a + b - k) // s + 1 != made or k > n + a + b:
            raise IntRangeError("windows that do not fit")
    if op.kind.endswith("max_pool2d"):
        if any(pads):
            raise IntRangeError("padding that is less than anything")
        return IntReduction(data, "max", (), True, (high, wide), (down, across))
    extras = () if op.kind.startswith("tflite.") else _inverses(op, data, (high, wide))
    return IntReduction(data, "sum", (), True, (high, wide), (down, across), pads, origin, extras)


def _inverses(op: Op, data: Value, window: tuple[int, int]) -> tuple[Value, ...]:
    """For each pixel of the result the multiplier and shift that divide by how many of its window are inside."""
    counts: Array = np.ones((1, 1, 1, 1), np.int64)
    for axis, (k, s) in enumerate(zip(window, op.args["stride"], strict=True)):
        starts = np.arange(_result(op).bound[1 + axis]) * int(s) - int(op.args["pad"][2 * axis])
        inside = np.minimum(starts + k, data.bound[1 + axis]) - np.maximum(starts, 0)
        counts = counts * inside.reshape((1, -1, 1, 1) if axis == 0 else (1, 1, -1, 1))
    return tuple(Value(name, np.dtype(np.int32), counts.shape, (0, 1, 2, 3), numbers.astype(np.int32)) for name, numbers
                 in zip(("multiplier", "shift"), reciprocals(counts), strict=True))  # fmt: skip


# --------------------------------------------------------------------------------------------------------- results


@reduce_epilogue("tflite.AVERAGE_POOL_2D")
def _average(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    count = int(op.args["filter_h"]) * int(op.args["filter_w"])
    below = i.compare("slt", total, i.constant(0))
    moved = i.add(total, i.select(below, i.constant(-(count // 2)), i.constant(count // 2)))
    return RangedInt(i.f.op("sdiv", moved.reg, count), -128, 127)


@reduce_epilogue("tflite.MEAN")
def _mean(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    fold, x, out = int_reduction(op), op.args["inputs"][0], _result(op)
    mantissa, exponent = mean_factor(float(np.float64(scale(x)) / np.float64(scale(out))), fold.count)
    centred = i.plus(total, -zero(x) * fold.count)
    return i.clamp(i.plus(i.rescale(centred, mantissa, 31 - exponent, "twice"), zero(out)), -128, 127)


@reduce_epilogue("tflite.MEAN xnnpack", "tflite.SUM xnnpack")
def _nearest(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    factor, start = nearest_factor(op, int_reduction(op).count)
    f, real = i.f, to_float32(i.f, total.reg)
    made = f.op("fadd", f.op("fmul", real, const(float(factor), real.type)), const(float(start), real.type))
    return RangedInt(round_to_int(f, clamp(f, made, -128, 127)), -128, 127)


@reduce_epilogue("tflite.SUM")
def _real_sum(i: RangedIntBuilder, op: Op, total: RangedInt, extras: list[Reg]) -> RangedInt:
    """In single precision; halves go away from zero."""
    x, out, f = op.args["inputs"][0], _result(op), i.f
    factor = scale(x) / scale(out)
    start = np.float32(-zero(x)) * factor * np.float32(int_reduction(op).count)
    real = to_float32(f, total.reg)
    made = f.op("fadd", f.op("fmul", real, const(float(factor), real.type)), const(float(start), real.type))
    near = clamp(f, made, -512, 512)  # beyond every byte, whatever the zero point
    whole = f.cast("fptosi", near, total.reg.type)
    rest = f.op("fsub", near, to_float32(f, whole))  # exact
    up, down = (f.cast("zext", f.compare(how, rest, const(by, rest.type)), total.reg.type) for how, by in
                (("oge", 0.5), ("ole", -0.5)))  # fmt: skip
    steps = f.op("sub", f.op("add", whole, up), down)
    return i.clamp(i.plus(RangedInt(steps, -513, 513), zero(out)), -128, 127)


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
    centred = i.plus(total, -int(op.args["input_zp"]) * window)
    made = RangedInt(scale_by(i.f, "single", extras[0], extras[1], False)(i.narrow(centred).reg), -(1 << 16), 1 << 16)
    return i.clamp(i.plus(made, int(op.args["output_zp"])), *dtype_range(out))
