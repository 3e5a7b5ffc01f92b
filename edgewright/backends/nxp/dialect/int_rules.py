"""TFLite's integer operators that core operators do not express, bit-exact with LiteRT.

ADD and SUB follow TFLite's reference: shift operands left by 20 bits, rescale both to twice the larger scale, add, and
rescale to the output; every rescale rounds twice (doubling high multiply, then rounding shift).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect import elementwise as tflite
from edgewright.backends.nxp.dialect.numerics import rounds_like_xnnpack, scale, zero_point
from edgewright.backends.nxp.dialect.table import PREFIX
from edgewright.ir.fixed_point import (
    DIFF_BITS,
    SUM_BITS,
    exp_on_negative_values,
    multiply_by_quantized,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_arithmetic import Float, IntArithmetic, IntRangeError, RangedInt
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


def _rescale(i: IntArithmetic, x: RangedInt, factor: Any) -> RangedInt:
    mantissa, exponent = (int(n) for n in quantize_multiplier(factor))
    return i.rescale(x, mantissa, 31 - exponent, "twice")


def _subtract_zero_points(i: IntArithmetic, op: Op, args: Args) -> Args:
    return [i.plus(x, -zero_point(v)) for x, v in zip(args, op.args["inputs"], strict=True)]


def _to_output(i: IntArithmetic, result: RangedInt, out: Value, low: int = -128, high: int = 127) -> RangedInt:
    return i.clamp(i.plus(result, zero_point(out)), low, high)


@_rule("ADD", "SUB")
def _add_sub(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    values, out = op.args["inputs"], result_of(op)
    common_scale = 2 * float(max(scale(v) for v in values))
    a, b = (_rescale(i, i.shift_left(x, tflite.LEFT_SHIFT), float(scale(v)) / common_scale) for x, v in
            zip(_subtract_zero_points(i, op, args), values, strict=True))  # fmt: skip
    total = i.add(a, b) if op.kind.endswith("ADD") else i.sub(a, b)
    return _to_output(i, _rescale(i, total, common_scale / (2.0**tflite.LEFT_SHIFT * float(scale(out)))), out)


@_rule("MUL")
def _product(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    (a, b), out = op.args["inputs"], result_of(op)
    return _to_output(i, _rescale(i, i.mul(*_subtract_zero_points(i, op, args)), tflite.product_factor(a, b, out)), out)


@_rule(*tflite.RELU_RANGES)
def _relu(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    (x,), out = op.args["inputs"], result_of(op)
    limits = tflite.clamp_limits(out, *tflite.RELU_RANGES[op.kind.removeprefix(PREFIX)])
    return _to_output(i, _rescale(i, _subtract_zero_points(i, op, args)[0], scale(x) / scale(out)), out, *limits)


@_rule("PRELU")
def _prelu(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    (x, slope), out = op.args["inputs"], result_of(op)
    data, slopes = _subtract_zero_points(i, op, args)
    negative = _rescale(i, i.mul(data, slopes), tflite.product_factor(x, slope, out))
    positive = _rescale(i, data, scale(x) / scale(out))
    return _to_output(i, i.select(i.compare("sge", data, i.constant(0)), positive, negative), out)


_rule("MAXIMUM")(lambda i, op, args: i.largest(*args))
_rule("MINIMUM")(lambda i, op, args: i.smallest(*args))


# ----------------------------------------------------------------------------------------------- reductions and pools


@describes(f"{PREFIX}AVERAGE_POOL_2D", f"{PREFIX}MAX_POOL_2D")
def _pool(op: Op, numerics: Numerics) -> IntReduction:
    """Of stored integers: input and output have the same quantization parameters."""
    data = op.args["inputs"][0]
    high, wide, stride_h, stride_w = (int(op.args[n]) for n in ("filter_h", "filter_w", "stride_h", "stride_w"))
    count = high * wide
    check_windows(data, result_of(op), (high, wide), (stride_h, stride_w))
    if op.kind.endswith("MAX_POOL_2D"):
        return IntReduction(data, "max", window=(high, wide), stride=(stride_h, stride_w))

    def average(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        """Round half away from zero: add half the count with the sum's sign, then truncate."""
        negative = i.compare("slt", total, i.constant(0))
        rounded = i.add(total, i.select(negative, i.constant(-(count // 2)), i.constant(count // 2)))
        return RangedInt(i.divide(rounded, i.constant(count)).data, -128, 127)

    return IntReduction(data, "sum", average, window=(high, wide), stride=(stride_h, stride_w))


@describes(*(PREFIX + name for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")))
def _reduction(op: Op, numerics: Numerics) -> IntReduction:
    data, keepdims = op.args["inputs"][0], bool(op.args["keep_dims"])
    axes = reduce_axes(data, np.atleast_1d(op.args["inputs"][1].data), keepdims, result_of(op))
    count, name = int(np.prod([data.bound[a] for a in axes])), op.kind.removeprefix(PREFIX)
    if name.startswith("REDUCE_"):
        return IntReduction(data, name[-3:].lower(), None, axes, keepdims)
    reference = _mean if name == "MEAN" else _sum
    finish = _round_to_even if rounds_like_xnnpack(numerics) else reference
    return IntReduction(data, "sum", finish(op, data, result_of(op), count), axes, keepdims)


def _mean(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """A fixed-point multiplier with two roundings."""
    mantissa, exponent = _mean_multiplier(float(np.float64(scale(x)) / np.float64(scale(out))), count)

    def finish(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        centered = i.plus(total, -zero_point(x) * count)
        return i.clamp(i.plus(i.rescale(centered, mantissa, 31 - exponent, "twice"), zero_point(out)), -128, 127)

    return finish


def _mean_multiplier(factor: float, count: int) -> tuple[int, int]:
    """Mantissa and exponent of ``factor / count``, normalized to 31 bits before the integer division."""
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    return (mantissa << shift) // count, exponent - shift


def _round_to_even(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """SUM or MEAN as XNNPACK rounds: adds both zero points first, then rounds once, half to even."""
    factor = scale(x) / scale(out)
    if op.kind.endswith("MEAN"):
        factor = factor * (np.float32(1) / np.float32(count))
    start = np.float32(zero_point(out)) - np.float32(zero_point(x) * count) * factor

    def finish(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        return i.to_int(i.float_clamp(_multiply_add(i, total, factor, start), -128, 127), -128, 127)

    return finish


def _multiply_add(i: IntArithmetic, total: RangedInt, factor: np.float32, start: np.float32) -> Float:
    return i.float_op("add", i.float_op("mul", i.to_float(total), factor), start)


def _sum(op: Op, x: Value, out: Value, count: int) -> ReduceEpilogue:
    """The reference SUM: float32, round half away from zero."""
    factor = scale(x) / scale(out)
    start = np.float32(-zero_point(x)) * factor * np.float32(count)

    def finish(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        scaled = i.float_clamp(_multiply_add(i, total, factor, start), -512, 512)  # outside int8 for any zero point
        truncated = i.to_int(scaled, -512, 512, rounded=False)
        fraction = i.float_op("sub", scaled, i.to_float(truncated))  # exact
        up, down = i.float_compare("oge", fraction, 0.5), i.float_compare("ole", fraction, -0.5)
        return _to_output(i, i.sub(i.add(truncated, up), down), out)

    return finish


@describes(f"{PREFIX}SOFTMAX")
def _softmax(op: Op, numerics: Numerics) -> FixedPointSoftmax:
    """Over the last dimension; the output scale is 1/256."""
    return FixedPointSoftmax(op.args["inputs"][0], *_softmax_exp_table(op))


def _softmax_exp_table(op: Op) -> tuple[Array, Array]:
    """``exp`` for each of the 256 possible differences to the row maximum, and the same in the format of the sum; 0
    beyond the range of the fixed-point input (TFLite's ``diff_min``)."""
    x = op.args["inputs"][0]
    factor = min(float(np.float64(op.args["beta"]) * np.float64(scale(x)) * (1 << (31 - DIFF_BITS))), 2.0**31 - 1)
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    max_steps = int(np.floor(((1 << DIFF_BITS) - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0**exponent))
    steps = np.arange(256, dtype=np.int64)
    in_range = steps <= max_steps
    exps = np.where(
        in_range, exp_on_negative_values(multiply_by_quantized(np.where(in_range, -steps, 0), mantissa, exponent)), 0
    )
    return exps, rounding_divide_by_pot(exps, SUM_BITS)


# ----------------------------------------------------------------------------------------------------- resize, gather


@describes(f"{PREFIX}RESIZE_BILINEAR")
def _resize(op: Op, numerics: Numerics) -> BilinearResize:
    data, align_corners, half_pixel = op.args["inputs"][0], op.args["align_corners"], op.args["half_pixel_centers"]
    sizes = list(zip(data.bound[1:3], result_of(op).bound[1:3], strict=True))
    if rounds_like_xnnpack(numerics):
        taps = [_bilinear_taps(in_size, out_size, bool(align_corners)) for in_size, out_size in sizes]
        rows, columns = (ResizeAxis.between(*each, 2048) for each in taps)
        return BilinearResize(data, (rows, columns), _round_half_up)
    axis_taps = [_resize_taps(in_size, out_size, align_corners, half_pixel) for in_size, out_size in sizes]
    rows, columns = (ResizeAxis.of(*(np.stack([tap[n] for tap in pair]) for n in (0, 1))) for pair in axis_taps)
    return BilinearResize(data, (rows, columns), _round_half_away)


def _resize_taps(size: int, out_size: int, aligned: bool, half: bool) -> list[tuple[Array, Array]]:
    """Indices of the two neighboring pixels of each output position, and their weights."""
    step = ((size << 10) + out_size // 2) // out_size
    if aligned and out_size > 1:
        step = (((size - 1) << 10) + (out_size - 1) // 2) // (out_size - 1)
    position = np.arange(out_size, dtype=np.int64) * step + (step // 2 - 512 if half else 0)
    low = np.maximum(np.where(position >= 0, position >> 10, -((-position) >> 10)), 0)
    high = np.minimum((position + 1023) >> 10, size - 1)
    return [(low, 1024 - (position - (low << 10))), (high, position - (low << 10))]


def _bilinear_taps(size: int, out_size: int, aligned: bool) -> tuple[Array, Array, Array]:
    """Indices of the two neighboring pixels of each output position, and the weight of the second (XNNPACK)."""
    float32, positions = np.float32, np.arange(out_size, dtype=np.float32)
    if aligned:
        source = positions * (float32(size - 1) / float32(max(out_size - 1, 1)))
    else:
        half, step = float32(0.5), float32(size) / float32(out_size)
        source = np.clip((positions + half) * step - half, 0, size - 1)
    first = np.floor(source).astype(np.int64)
    weight = np.rint((source - first.astype(float32)) * float32(2048)).astype(np.int64)
    return first, np.minimum(first + 1, size - 1), weight


def _round_half_up(i: IntArithmetic, total: RangedInt) -> RangedInt:
    """XNNPACK: 22 fractional bits, round half up."""
    return i.shift_right(i.plus(total, 1 << 21), 22)


def _round_half_away(i: IntArithmetic, total: RangedInt) -> RangedInt:
    """The reference: 20 fractional bits, round half away from zero."""
    sign = i.compare("slt", total, i.constant(0))
    rounded = i.add(total, i.sub(i.constant(1 << 19), sign))
    return i.shift_right(rounded, 20)


@describes(f"{PREFIX}RESIZE_NEAREST_NEIGHBOR")
def _nearest_neighbor(op: Op, numerics: Numerics) -> IndexGather:
    data, out = op.args["inputs"][0], result_of(op).bound
    if len(data.bound) != 4 or len(out) != 4:
        raise IntRangeError("not an image")
    indices = [np.arange(n) for n in data.bound]
    indices[1:3] = [np.arange(n) * size // n for n, size in zip(out[1:3], data.bound[1:3], strict=True)]
    return IndexGather(data, indices)


@describes(f"{PREFIX}MIRROR_PAD")
def _mirror_pad(op: Op, numerics: Numerics) -> IndexGather:
    """Mode 0 (REFLECT) excludes the edge element, mode 1 (SYMMETRIC) repeats it."""
    data, widths = op.args["inputs"]
    mode: Any = "symmetric" if op.args["mode"] else "reflect"
    if widths.data is None or widths.data.shape != (len(data.bound), 2) or 0 in data.bound or widths.data.min() < 0:
        raise IntRangeError("padding is not constant")
    pairs = [(int(a), int(b)) for a, b in widths.data]
    return IndexGather(data, [np.pad(np.arange(n), pair, mode=mode) for n, pair in zip(data.bound, pairs, strict=True)])
