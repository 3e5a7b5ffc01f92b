"""TOSA's integer operators that core operators do not express, bit-exact with the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.ethos_u.dialect.table import PREFIX
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_arithmetic import IntArithmetic, IntRangeError, RangedInt
from edgewright.ir.int_rules import (
    AccumulatorConv,
    ArgMaxReduction,
    Args,
    BatchedGather,
    BatchedScatter,
    BilinearResize,
    E,
    Emit,
    IndexGather,
    IntReduction,
    ResizeAxis,
    check_windows,
    describes,
    dtype_range,
    elementwise_rule,
    reduce_axes,
    result_of,
)
from edgewright.ir.numerics import Numerics

_OPERANDS = ("input", "a", "b", "condition", "on_true", "on_false")


def _operands(op: Op) -> list[Value]:
    names = (*_OPERANDS, "multiplier", "shift") if op.args.get("per_channel") else _OPERANDS
    return [op.args[name] for name in names if name in op.args]


def _rule(*names: str) -> Callable[[E], E]:
    return elementwise_rule(*(PREFIX + name for name in names), operands=_operands)


def _width(op: Op) -> int:
    """Bits of a result's elements."""
    dtype = result_of(op).dtype
    assert dtype is not None
    return 8 * dtype.itemsize


@_rule("rescale")
def _rescale(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    """``((input - input_zp) * multiplier >> shift) + output_zp``, saturated; channels are the last dimension.

    TOSA has one 8-bit type and flags for signedness; here tensors have signed and unsigned types.
    """
    by, bits = (np.ravel(op.args[name].data) for name in ("multiplier", "shift"))
    x, rounding = i.plus(args[0], -op.args["input_zp"]), op.args["rounding"]
    if len(args) == 1:
        result = i.rescale(x, int(by[0]), int(bits[0]), rounding)
    else:
        factors, shifts = (
            RangedInt(a.data, int(n.min()), int(n.max())) for a, n in zip(args[1:], (by, bits), strict=True)
        )
        result = i.rescale_each(x, factors, shifts, rounding)
    return i.clamp(i.plus(result, op.args["output_zp"]), *dtype_range(result_of(op)))


@_rule("mul")
def _mul(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    result, bits = i.mul(*args), int(op.args["shift"])
    if bits:
        result = i.shift_right(i.plus(result, 1 << (bits - 1)), bits)
    return i.wrap(result, _width(op))


@_rule("clamp")
def _clamp(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    low, high = op.args["min_val"], op.args["max_val"]
    if low != int(low) or high != int(high):
        raise IntRangeError("limits are not integers")
    return i.clamp(args[0], int(low), int(high))


@_rule("negate")
def _negate(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    result = i.sub(i.constant(int(op.args["output_zp"]) + int(op.args["input_zp"])), args[0])
    return i.clamp(result, *dtype_range(result_of(op)))


@_rule("table")
def _table(i: IntArithmetic, op: Op, args: Args) -> RangedInt:
    """8 bits: lookup. 16 bits: linear interpolation between two of 513 entries, with 7 fractional bits."""
    entries = [int(n) for n in np.ravel(op.args["table"].data)]
    if op.args["input"].dtype == np.dtype(np.int8):
        return i.lookup(entries, i.plus(args[0], 128))
    position = i.plus(args[0], 1 << 15)
    first, fraction = i.shift_right(position, 7), i.bitwise("and", position, i.constant(127))
    lower, upper = i.lookup(entries, first), i.lookup(entries, i.plus(first, 1))
    result = i.add(i.shift_left(lower, 7), i.mul(i.sub(upper, lower), RangedInt(fraction.data, 0, 127)))
    return RangedInt(result.data, min(entries) << 7, max(entries) << 7)  # within the entries' range


_RULES: dict[str, Emit] = {
    "add": lambda i, op, args: i.wrap(i.add(*args), _width(op)),
    "sub": lambda i, op, args: i.wrap(i.sub(*args), _width(op)),
    "abs": lambda i, op, args: i.wrap(i.largest(args[0], i.sub(i.constant(0), args[0])), _width(op)),
    "intdiv": lambda i, op, args: i.wrap(i.divide(*args), _width(op)),  # by zero: left open by the specification
    "maximum": lambda i, op, args: i.largest(*args),
    "minimum": lambda i, op, args: i.smallest(*args),
    "arithmetic_right_shift": lambda i, op, args: i.shift_right_each(*args, op.args["round"]),
    "logical_left_shift": lambda i, op, args: i.shift_logical(*args, True, _width(op)),
    "logical_right_shift": lambda i, op, args: i.shift_logical(*args, False, _width(op)),
    "clz": lambda i, op, args: i.leading_zeros(*args),
    **dict.fromkeys(("bitwise_and", "logical_and"), lambda i, op, args: i.bitwise("and", *args)),
    **dict.fromkeys(("bitwise_or", "logical_or"), lambda i, op, args: i.bitwise("or", *args)),
    **dict.fromkeys(("bitwise_xor", "logical_xor"), lambda i, op, args: i.bitwise("xor", *args)),
    "bitwise_not": lambda i, op, args: i.sub(i.constant(-1), *args),
    "logical_not": lambda i, op, args: i.sub(i.constant(1), *args),
    "equal": lambda i, op, args: i.compare("eq", *args),
    "greater": lambda i, op, args: i.compare("sgt", *args),
    "greater_equal": lambda i, op, args: i.compare("sge", *args),
    "select": lambda i, op, args: i.select(*args),
    "identity": lambda i, op, args: args[0],
    "cast": lambda i, op, args: i.compare("ne", *args, i.constant(0)) if op.args["dtype"] == "bool" else args[0],
}
for _name, _emit in _RULES.items():
    _rule(_name)(_emit)


# ----------------------------------------------------------------------------------------------- reductions and pools


_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_any": "max", "reduce_min": "min", "reduce_all": "min"}


@describes(*(PREFIX + name for name in _REDUCTIONS))
def _reduction(op: Op, numerics: Numerics) -> IntReduction:
    data = op.args["input"]
    axes = reduce_axes(data, [op.args["axis"]], True, result_of(op))
    return IntReduction(data, _REDUCTIONS[op.kind.removeprefix(PREFIX)], axes=axes)


@describes(f"{PREFIX}max_pool2d", f"{PREFIX}avg_pool2d")
def _pool(op: Op, numerics: Numerics) -> IntReduction:
    data, out = op.args["input"], result_of(op)
    (high, wide), (stride_h, stride_w) = ([int(n) for n in op.args[name]] for name in ("kernel", "stride"))
    top, bottom, left, right = (int(n) for n in op.args["pad"])
    window, stride, pads = (high, wide), (stride_h, stride_w), (top, bottom, left, right)
    check_windows(data, out, window, stride, pads)
    if op.kind.endswith("max_pool2d"):
        lowest = -np.inf if data.dtype.kind == "f" else dtype_range(data)[0]
        return IntReduction(data, "max", None, (), True, window, stride, pads, lowest)
    zero, extras = int(op.args["input_zp"]), _reciprocals(op, data, window)
    limits = dtype_range(out)

    def average(i: IntArithmetic, total: RangedInt, extras: Args) -> RangedInt:
        """Padding is not counted. The sum is multiplied by a reciprocal, rounding half up."""
        centered = i.plus(total, -zero * high * wide)
        scaled = i.rescale_each(centered, extras[0], extras[1], "single", 1 << 16)
        return i.clamp(i.plus(scaled, int(op.args["output_zp"])), *limits)

    return IntReduction(data, "sum", average, (), True, window, stride, pads, zero, extras)


def _reciprocals(op: Op, data: Value, window: tuple[int, int]) -> tuple[Value, ...]:
    """Multiplier and shift per output pixel that divide by the number of window elements inside the image."""
    counts: Array = np.ones((1, 1, 1, 1), np.int64)
    for axis, (k, s) in enumerate(zip(window, op.args["stride"], strict=True)):
        starts = np.arange(result_of(op).bound[1 + axis]) * int(s) - int(op.args["pad"][2 * axis])
        inside = np.minimum(starts + k, data.bound[1 + axis]) - np.maximum(starts, 0)
        counts = counts * inside.reshape((1, -1, 1, 1) if axis == 0 else (1, 1, -1, 1))
    return tuple(Value(name, np.dtype(np.int32), counts.shape, (0, 1, 2, 3), numbers.astype(np.int32)) for name, numbers
                 in zip(("multiplier", "shift"), reciprocal_scale(counts), strict=True))  # fmt: skip


def reciprocal_scale(count: Array) -> tuple[Array, Array]:
    """Multiplier and shift of 1/count, as TOSA's ``reciprocal_scale`` defines them."""
    bits = np.frompyfunc(lambda n: (n - 1).bit_length(), 1, 1)(count.astype(object)).astype(np.int64)
    multiplier = ((np.int64(1) << 30) + 1) * (np.int64(1) << bits) // count
    return multiplier, 30 + bits


@describes(f"{PREFIX}argmax")
def _argmax(op: Op, numerics: Numerics) -> ArgMaxReduction:
    return ArgMaxReduction(op.args["input"], int(op.args["axis"]))


@describes(f"{PREFIX}conv2d", f"{PREFIX}depthwise_conv2d")
def _accumulators(op: Op, numerics: Numerics) -> AccumulatorConv:
    """A convolution whose accumulators something other than a RESCALE reads."""
    weight, bias = op.args["weight"], op.args["bias"]
    constants = all(v.data is not None and v.dtype.kind == "i" and v.data.size for v in (weight, bias))
    depthwise = "depthwise" in op.kind
    if any(op.args["pad"]) or not constants or len(weight.bound) != 4 or (depthwise and weight.bound[3] != 1):
        raise IntRangeError("padded, or weights that are not constant integers")
    weights = weight.data.astype(np.int64) - int(op.args["weight_zp"])
    weights = weights[..., 0] if depthwise else weights.transpose(1, 2, 3, 0)
    biases = np.broadcast_to(bias.data.astype(np.int64).reshape(-1), weights.shape[-1:])
    stride, dilation = ((int(h), int(w)) for h, w in (op.args["stride"], op.args["dilation"]))
    arrays = np.ascontiguousarray(weights), np.ascontiguousarray(biases)
    return AccumulatorConv(op.args["input"], *arrays, int(op.args["input_zp"]), stride, dilation, depthwise)


# ----------------------------------------------------------------------------------------------------- resize, gather


@describes(f"{PREFIX}resize")
def _resize(op: Op, numerics: Numerics) -> BilinearResize | IndexGather:
    """``scale`` is (numerator, denominator) of rows, then of columns.

    Bilinear integer results are wider: they are scaled by both numerators.
    """
    data, scale = op.args["input"], [int(n) for n in op.args["scale"]]
    if len(data.bound) != 4 or len(result_of(op).bound) != 4:
        raise IntRangeError("not images")
    neighbors = _source_positions(data.bound[1:3], scale, op.args["offset"], op.args["border"])
    if op.args["mode"] == "bilinear":
        rows, columns = (ResizeAxis.between(*pair, n) for pair, n in zip(neighbors, scale[::2], strict=True))
        return BilinearResize(data, (rows, columns), divisor=scale[0] * scale[2])
    indices = _identity_indices(data)
    indices[1:3] = [np.where(fraction * 2 >= n, upper, lower) for (lower, upper, fraction), n in
                    zip(neighbors, scale[::2], strict=True)]  # fmt: skip
    return IndexGather(data, indices)


def _source_positions(
    size: Sequence[int], scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> list[tuple[Array, Array, Array]]:
    """Per axis: the two neighboring source indices of each output, and the fraction in parts of the numerator."""
    positions = []
    for axis, (in_size, n, d) in enumerate(zip(size, scale[::2], scale[1::2], strict=True)):
        count = ((in_size - 1) * n - offset[axis] + border[axis]) // d + 1
        scaled = np.arange(count, dtype=np.int64) * d + offset[axis]
        low = scaled // n
        positions.append((np.clip(low, 0, in_size - 1), np.clip(low + 1, 0, in_size - 1), scaled - low * n))
    return positions


def _identity_indices(data: Value) -> list[Array]:
    return [np.arange(n) for n in data.bound]


@describes(f"{PREFIX}tile")
def _tile(op: Op, numerics: Numerics) -> IndexGather:
    data = op.args["input"]
    sizes = [n * int(m) for n, m in zip(data.bound, op.args["multiples"], strict=True)]
    return IndexGather(data, [np.arange(m) % n for m, n in zip(sizes, data.bound, strict=True)])


@describes(f"{PREFIX}reverse")
def _reverse(op: Op, numerics: Numerics) -> IndexGather:
    data, axis = op.args["input"], int(op.args["axis"])
    indices = _identity_indices(data)
    indices[axis] = indices[axis][::-1]
    return IndexGather(data, indices)


@describes(f"{PREFIX}gather")
def _gather(op: Op, numerics: Numerics) -> BatchedGather:
    return BatchedGather(op.args["values"], op.args["indices"])


@describes(f"{PREFIX}scatter")
def _scatter(op: Op, numerics: Numerics) -> BatchedScatter:
    return BatchedScatter(op.args["values"], op.args["input"], op.args["indices"])
