"""Rules by which the engine compiles TFLite's integer operators, bit-exact with their references.

ADD and SUB follow TFLite's reference: shift operands left by 20 bits, rescale both to twice the larger scale, add, and
rescale to the output; every rescale rounds twice (doubling high multiply, then rounding shift).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect import elementwise as tflite
from edgewright.backends.nxp.dialect.conv import resize_taps
from edgewright.backends.nxp.dialect.numerics import rounds_like_xnnpack, scale, zero_point
from edgewright.backends.nxp.dialect.softmax_reduce import mean_multiplier, single_rounding_factor, softmax_exp_table
from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.backends.nxp.dialect.xnnpack_rounding import bilinear_taps
from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.vector import clamp, round_to_int, to_float32
from edgewright.ir.fixed_point import quantize_multiplier
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import (
    Args,
    BilinearResize,
    E,
    FixedPointSoftmax,
    IndexGather,
    IntReduction,
    ReduceEpilogue,
    ResizeAxis,
    check_windows,
    describes,
    elementwise_rule,
    reduce_axes,
    result_of,
    tabulate,
)
from edgewright.ir.numerics import Numerics

_TABLES = ("LOGISTIC", "TANH", "EXP", "LOG", "RSQRT", "LEAKY_RELU", "ABS", "HARD_SWISH")
tabulate(*(PREFIX + name for name in _TABLES))


def _rule(*names: str) -> Callable[[E], E]:
    return elementwise_rule(*(PREFIX + name for name in names))


def _rescale(i: RangedIntBuilder, x: RangedInt, factor: Any) -> RangedInt:
    mantissa, exponent = (int(n) for n in quantize_multiplier(factor))
    return i.rescale(x, mantissa, 31 - exponent, "twice")


def _subtract_zero_points(i: RangedIntBuilder, op: Op, args: Args) -> Args:
    return [i.plus(x, -zero_point(v)) for x, v in zip(args, op.args["inputs"], strict=True)]


def _to_output(i: RangedIntBuilder, result: RangedInt, out: Value, low: int = -128, high: int = 127) -> RangedInt:
    return i.clamp(i.plus(result, zero_point(out)), low, high)


@_rule("ADD", "SUB")
def _add_sub(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    values, out = op.args["inputs"], result_of(op)
    common_scale = 2 * float(max(scale(v) for v in values))
    a, b = (_rescale(i, i.shift_left(x, tflite.LEFT_SHIFT), float(scale(v)) / common_scale) for x, v in
            zip(_subtract_zero_points(i, op, args), values, strict=True))  # fmt: skip
    total = i.add(a, b) if op.kind.endswith("ADD") else i.sub(a, b)
    return _to_output(i, _rescale(i, total, common_scale / (2.0**tflite.LEFT_SHIFT * float(scale(out)))), out)


@_rule("MUL")
def _product(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (a, b), out = op.args["inputs"], result_of(op)
    return _to_output(i, _rescale(i, i.mul(*_subtract_zero_points(i, op, args)), tflite.product_factor(a, b, out)), out)


@_rule(*tflite.RELU_RANGES)
def _relu(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x,), out = op.args["inputs"], result_of(op)
    limits = tflite.clamp_limits(out, *tflite.RELU_RANGES[op.kind.removeprefix(PREFIX)])
    return _to_output(i, _rescale(i, _subtract_zero_points(i, op, args)[0], scale(x) / scale(out)), out, *limits)


@_rule("PRELU")
def _prelu(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    (x, slope), out = op.args["inputs"], result_of(op)
    data, slopes = _subtract_zero_points(i, op, args)
    negative = _rescale(i, i.mul(data, slopes), tflite.product_factor(x, slope, out))
    positive = _rescale(i, data, scale(x) / scale(out))
    return _to_output(i, i.select(i.compare("sge", data, i.constant(0)), positive, negative), out)


@_rule("MAXIMUM")
def _maximum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.largest(*args)


@_rule("MINIMUM")
def _minimum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.smallest(*args)


# ----------------------------------------------------------------------------------------------- reductions and pools


@describes(f"{PREFIX}AVERAGE_POOL_2D")
def _average_pool(op: Op, numerics: Numerics) -> IntReduction:
    data = op.args["inputs"][0]
    high, wide, stride_h, stride_w = (int(op.args[n]) for n in ("filter_h", "filter_w", "stride_h", "stride_w"))
    count = high * wide
    check_windows(data, result_of(op), (high, wide), (stride_h, stride_w))

    def average(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        """Round half away from zero: add half the count with the sum's sign, then truncate."""
        negative = i.compare("slt", total, i.constant(0))
        rounded = i.add(total, i.select(negative, i.constant(-(count // 2)), i.constant(count // 2)))
        return RangedInt(i.f.op("sdiv", rounded.data, count), -128, 127)

    return IntReduction(data, "sum", average, window=(high, wide), stride=(stride_h, stride_w))


@describes(*(PREFIX + name for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")))
def _reduction(op: Op, numerics: Numerics) -> IntReduction:
    data, keepdims = op.args["inputs"][0], bool(op.args["keep_dims"])
    axes = reduce_axes(data, np.atleast_1d(op.args["inputs"][1].data), keepdims, result_of(op))
    count, name = int(np.prod([data.bound[a] for a in axes])), op.kind.removeprefix(PREFIX)
    if name.startswith("REDUCE_"):
        return IntReduction(data, name[-3:].lower(), lambda i, total, extras: total, axes, keepdims)
    reference = _mean if name == "MEAN" else _sum
    finish = _round_to_even if rounds_like_xnnpack(numerics) else reference
    return IntReduction(data, "sum", finish(op, data, result_of(op), count), axes, keepdims)


def _mean(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """A fixed-point multiplier with two roundings."""
    mantissa, exponent = mean_multiplier(float(np.float64(scale(x)) / np.float64(scale(out))), count)

    def finish(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        centered = i.plus(total, -zero_point(x) * count)
        return i.clamp(i.plus(i.rescale(centered, mantissa, 31 - exponent, "twice"), zero_point(out)), -128, 127)

    return finish


def _round_to_even(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """XNNPACK: multiply in float32, round to nearest even."""
    factor, start = single_rounding_factor(op, count)

    def finish(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        scaled = _multiply_add(i, total, factor, start)
        return RangedInt(round_to_int(i.f, clamp(i.f, scaled, -128, 127)), -128, 127)

    return finish


def _multiply_add(i: RangedIntBuilder, total: RangedInt, factor: np.float32, start: np.float32) -> Reg:
    f, floats = i.f, to_float32(i.f, total.data)
    return f.op("fadd", f.op("fmul", floats, const(float(factor), floats.type)), const(float(start), floats.type))


def _sum(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """The reference SUM: float32, round half away from zero."""
    factor = scale(x) / scale(out)
    start = np.float32(-zero_point(x)) * factor * np.float32(count)

    def finish(i: RangedIntBuilder, total: RangedInt, extras: Args) -> RangedInt:
        f = i.f
        clamped = clamp(f, _multiply_add(i, total, factor, start), -512, 512)  # outside int8 for any zero point
        truncated = f.cast("fptosi", clamped, total.data.type)
        fraction = f.op("fsub", clamped, to_float32(f, truncated))  # exact
        up, down = (f.cast("zext", f.compare(predicate, fraction, const(tie, fraction.type)), total.data.type)
                    for predicate, tie in (("oge", 0.5), ("ole", -0.5)))  # fmt: skip
        rounded = f.op("sub", f.op("add", truncated, up), down)
        return i.clamp(i.plus(RangedInt(rounded, -513, 513), zero_point(out)), -128, 127)

    return finish


@describes(f"{PREFIX}SOFTMAX")
def _softmax(op: Op, numerics: Numerics) -> FixedPointSoftmax:
    return FixedPointSoftmax(op.args["inputs"][0], *softmax_exp_table(op))


# ----------------------------------------------------------------------------------------------------- resize, gather


@describes(f"{PREFIX}RESIZE_BILINEAR")
def _resize(op: Op, numerics: Numerics) -> BilinearResize:
    data, align_corners, half_pixel = op.args["inputs"][0], op.args["align_corners"], op.args["half_pixel_centers"]
    sizes = list(zip(data.bound[1:3], result_of(op).bound[1:3], strict=True))
    if rounds_like_xnnpack(numerics):
        taps = [bilinear_taps(in_size, out_size, bool(align_corners)) for in_size, out_size in sizes]
        rows, columns = (ResizeAxis.between(*each, 2048) for each in taps)
        return BilinearResize(data, (rows, columns), _round_half_up)
    axis_taps = [resize_taps(in_size, out_size, align_corners, half_pixel) for in_size, out_size in sizes]
    rows, columns = (ResizeAxis.of(*(np.stack([tap[n] for tap in pair]) for n in (0, 1))) for pair in axis_taps)
    return BilinearResize(data, (rows, columns), _round_half_away)


def _round_half_up(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    """XNNPACK: 22 fractional bits, round half up."""
    return i.shift_right(i.plus(total, 1 << 21), 22)


def _round_half_away(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    """The reference: 20 fractional bits, round half away from zero."""
    sign = i.compare("slt", total, i.constant(0))
    rounded = i.add(total, i.sub(i.constant(1 << 19), sign))
    return i.shift_right(rounded, 20)


@describes(f"{PREFIX}RESIZE_NEAREST_NEIGHBOR")
def _nearest_neighbor(op: Op, numerics: Numerics) -> IndexGather:
    data, out = op.args["inputs"][0], result_of(op).bound
    if len(data.bound) != 4 or len(out) != 4 or op.args["align_corners"] or op.args["half_pixel_centers"]:
        raise IntRangeError("not an image, or unsupported sampling")
    indices = [np.arange(n) for n in data.bound]
    indices[1:3] = [np.arange(n) * size // n for n, size in zip(out[1:3], data.bound[1:3], strict=True)]
    return IndexGather(data, indices)


@describes(f"{PREFIX}MIRROR_PAD")
def _mirror_pad(op: Op, numerics: Numerics) -> IndexGather:
    data, widths = op.args["inputs"]
    mode: Any = "symmetric" if op.args["mode"] else "reflect"
    if widths.data is None or widths.data.shape != (len(data.bound), 2) or 0 in data.bound or widths.data.min() < 0:
        raise IntRangeError("padding is not constant")
    pairs = [(int(a), int(b)) for a, b in widths.data]
    return IndexGather(data, [np.pad(np.arange(n), pair, mode=mode) for n, pair in zip(data.bound, pairs, strict=True)])
