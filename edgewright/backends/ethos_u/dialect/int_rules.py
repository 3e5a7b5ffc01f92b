"""Rules by which the engine compiles TOSA's integer operators, bit-exact with their references."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from edgewright.backends.ethos_u.dialect.conv_pool import nearest_index, reciprocal_scale, source_positions
from edgewright.backends.ethos_u.dialect.table import PREFIX
from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.fixed_point import make_rescale
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import int_min
from edgewright.engine.int_rules import (
    AccumulatorConv,
    ArgMaxReduction,
    Args,
    BatchedGather,
    BatchedScatter,
    BilinearResize,
    E,
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
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics

_OPERANDS = ("input", "a", "b", "condition", "on_true", "on_false")


def _operands(op: Op) -> list[Value]:
    names = (*_OPERANDS, "multiplier", "shift") if op.args.get("per_channel") else _OPERANDS
    return [op.args[name] for name in names if name in op.args]


def _rule(*names: str) -> Callable[[E], E]:
    return elementwise_rule(*(PREFIX + name for name in names), operands=_operands)


def _wrap_int32(i: RangedIntBuilder, op: Op, result: RangedInt) -> RangedInt:
    """Truncate to the result's 32 bits, wrapping as numpy does."""
    if result_of(op).dtype != np.dtype(np.int32):
        return result
    if result.low >= -(1 << 31) and result.high < 1 << 31:
        return i.narrow(result)
    kind = result.reg.type.replace("i64", "i32")
    return RangedInt(i.f.cast("trunc", result.reg, kind), -(1 << 31), (1 << 31) - 1)


@_rule("rescale")
def _rescale(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    by, bits = (np.ravel(op.args[name].data) for name in ("multiplier", "shift"))
    x, rounding = i.plus(args[0], -op.args["input_zp"]), op.args["rounding"]
    if len(args) == 1:
        result = i.rescale(x, int(by[0]), int(bits[0]), rounding)
    else:
        result = i.rescale_each(x, args[1], args[2], (int(by.min()), int(by.max())), (int(bits.min()), int(bits.max())),
                              rounding)  # fmt: skip
    info = np.iinfo(op.args["dtype"])
    return i.clamp(i.plus(result, op.args["output_zp"]), int(info.min), int(info.max))


@_rule("add")
def _add(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.add(*args))


@_rule("sub")
def _sub(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.sub(*args))


@_rule("mul")
def _mul(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    result, bits = i.mul(*args), int(op.args["shift"])
    if bits:
        result = i.shift_right(i.plus(result, 1 << (bits - 1)), bits)
    return _wrap_int32(i, op, result)


@_rule("clamp")
def _clamp(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    low, high = op.args["min_val"], op.args["max_val"]
    if low != int(low) or high != int(high):
        raise IntRangeError("limits are not integers")
    return i.clamp(args[0], int(low), int(high))


@_rule("abs")
def _abs(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.largest(args[0], i.sub(i.constant(0), args[0])))


@_rule("negate")
def _negate(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    result = i.sub(i.constant(int(op.args["output_zp"]) + int(op.args["input_zp"])), args[0])
    return i.clamp(result, *dtype_range(result_of(op)))


@_rule("identity")
def _identity(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return args[0]


@_rule("cast")
def _cast(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    if op.args["dtype"] == "bool":
        return i.compare("ne", args[0], i.constant(0))
    return args[0]  # the store rejects ranges that do not fit


@_rule("arithmetic_right_shift")
def _right_shift(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """64-bit shift; out-of-range counts fill with the sign, as in numpy."""
    f, kind = i.f, "i32" if args[1].low >= 0 and args[1].high < 32 else "i64"
    a, bits = (i.wide(x, kind) for x in args)
    last = const(int(kind[1:]) - 1, a.type)
    result = f.op("ashr", a, int_min(f, bits, last, signed=False))
    low, high = min(args[0].low, 0), max(args[0].high, 0)  # halving with rounding does not exceed the operand
    if op.args["round"]:
        rounding_bit = f.op("and", f.op("ashr", a, int_min(f, f.add(bits, -1), last, signed=False)), 1)
        positive_count = f.compare("sgt", bits, 0)
        result = f.op("add", result, f.select(positive_count, rounding_bit, const(0, a.type)))
    return i.narrow(RangedInt(result, low, high))


@_rule("logical_left_shift", "logical_right_shift")
def _shift(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """Logical shift in the result's width; counts beyond it give 0."""
    f, (a, bits), dtype = i.f, args, result_of(op).dtype
    if dtype is None or dtype.kind != "i" or dtype.itemsize > 4 or any("i64" in x.reg.type for x in args):
        raise IntRangeError("shift of more than 32 bits")
    size, left = 8 * dtype.itemsize, "left" in op.kind
    unsigned = a.reg if left or size == 32 else f.op("and", a.reg, (1 << size) - 1)
    result = f.op("shl" if left else "lshr", unsigned, f.op("and", bits.reg, 31))
    if not (bits.low >= 0 and bits.high < 32):
        result = f.select(f.compare("ult", bits.reg, 32), result, const(0, result.type))
    if size < 32:  # sign-extend from the result's width
        result = f.op("ashr", f.op("shl", result, 32 - size), 32 - size)
    if left and bits.low >= 0 and bits.high < size:
        products = [n << b for n in (a.low, a.high) for b in (bits.low, bits.high)]
        if min(products) >= -(1 << size - 1) and max(products) < 1 << size - 1:
            return RangedInt(result, min(products), max(products))
    return RangedInt(result, *dtype_range(result_of(op)))


@_rule("intdiv")
def _quotient(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """Division toward zero; division by zero returns the dividend, and INT_MIN / -1 wraps as in numpy."""
    if result_of(op).dtype != np.dtype(np.int32):
        raise IntRangeError("not a 32-bit result")
    f, (a, b) = i.f, (i.wide(x, "i64") for x in args)
    is_zero = f.compare("eq", b, 0)
    result = f.op("sdiv", a, f.select(is_zero, const(1, b.type), b))
    return _wrap_int32(i, op, RangedInt(result, -(1 << 31), 1 << 31))


@_rule("table")
def _table(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """8 bits: direct lookup. 16 bits: linear interpolation between two of 513 entries, with 7 fractional bits."""
    entries = [int(n) for n in np.ravel(op.args["table"].data)]
    low, high = min(entries), max(entries)
    if op.args["input"].dtype == np.dtype(np.int8):
        return _table_lookup(i, entries, i.plus(args[0], 128))
    position = i.plus(args[0], 1 << 15)
    first, fraction = i.shift_right(position, 7), RangedInt(i.f.op("and", position.reg, 127), 0, 127)
    lower, upper = _table_lookup(i, entries, first), _table_lookup(i, entries, i.plus(first, 1))
    result = i.add(i.shift_left(lower, 7), i.mul(i.sub(upper, lower), fraction))
    return RangedInt(result.reg, low << 7, high << 7)  # an interpolation stays within the entries' range


def _table_lookup(i: RangedIntBuilder, entries: list[int], at: RangedInt) -> RangedInt:
    if at.low < 0 or at.high >= len(entries):
        raise IntRangeError("index outside the table")
    f, lanes = i.f, i.lanes
    name = f"entries{zlib.crc32(repr(entries).encode()):08x}"
    base = f.module.constant_array(name, entries, "i32")
    if lanes == 1:
        return RangedInt(
            f.load("i32", f.gep(base, f.cast("sext", f.mul(at.reg, 4), "i64"))), min(entries), max(entries)
        )
    pointers = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {base}, {at.reg.type} {at.reg}")
    all_lanes = Reg("splat (i1 true)", f"<{lanes} x i1>")
    kind, align = at.reg.type, Reg("4", "i32")
    result = f.call(
        f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", kind, pointers, align, all_lanes, Reg("zeroinitializer", kind)
    )
    return RangedInt(result, min(entries), max(entries))


_COMPARISONS = {"equal": "eq", "greater": "sgt", "greater_equal": "sge"}


@_rule(*_COMPARISONS)
def _compare(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.compare(_COMPARISONS[op.kind.removeprefix(PREFIX)], *args)


@_rule("select")
def _select(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.select(*args)


_BITWISE = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "logical_and": "and", "logical_or": "or",
    "logical_xor": "xor",
}  # fmt: skip


@_rule(*_BITWISE)
def _bitwise(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return RangedInt(
        i.f.op(_BITWISE[op.kind.removeprefix(PREFIX)], args[0].reg, args[1].reg), *dtype_range(result_of(op))
    )


@_rule("bitwise_not", "logical_not")
def _not(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    if op.kind.endswith("logical_not"):
        return i.sub(i.constant(1), args[0])
    return i.sub(i.constant(-1), args[0])


@_rule("clz")
def _leading_zeros(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    kind = args[0].reg.type
    suffix = f"v{i.lanes}i32" if i.lanes > 1 else "i32"
    if "i64" in kind:
        raise IntRangeError("64-bit operand")
    i.f.module.declare(f"declare {kind} @llvm.ctlz.{suffix}({kind}, i1)")
    result = i.f.emit(kind, f"call {kind} @llvm.ctlz.{suffix}({kind} {args[0].reg}, i1 false)")
    return RangedInt(result, 0, 32)


@_rule("maximum")
def _maximum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.largest(*args)


@_rule("minimum")
def _minimum(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.smallest(*args)


# ----------------------------------------------------------------------------------------------- reductions and pools


def _unchanged(i: RangedIntBuilder, total: RangedInt, extras: list[Reg]) -> RangedInt:
    return total


_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_any": "max", "reduce_min": "min", "reduce_all": "min"}


@describes(*(PREFIX + name for name in _REDUCTIONS))
def _reduction(op: Op, numerics: Numerics) -> IntReduction:
    data = op.args["input"]
    axes = reduce_axes(data, [op.args["axis"]], True, result_of(op))
    return IntReduction(data, _REDUCTIONS[op.kind.removeprefix(PREFIX)], _unchanged, axes)


@describes(f"{PREFIX}max_pool2d", f"{PREFIX}avg_pool2d")
def _pool(op: Op, numerics: Numerics) -> IntReduction:
    data, out = op.args["input"], result_of(op)
    (high, wide), (stride_h, stride_w) = ([int(n) for n in op.args[name]] for name in ("kernel", "stride"))
    top, bottom, left, right = (int(n) for n in op.args["pad"])
    window, stride, pads = (high, wide), (stride_h, stride_w), (top, bottom, left, right)
    check_windows(data, out, window, stride, pads)
    if op.kind.endswith("max_pool2d"):
        if any(pads):
            raise IntRangeError("padded max pool")
        return IntReduction(data, "max", _unchanged, window=window, stride=stride)
    zero, extras = int(op.args["input_zp"]), _reciprocals(op, data, window)

    def average(i: RangedIntBuilder, total: RangedInt, extras: list[Reg]) -> RangedInt:
        """Multiply by a reciprocal, with one rounding."""
        centered = i.narrow(i.plus(total, -zero * high * wide))
        scaled = make_rescale(i.f, "single", extras[0], extras[1], False)(centered.reg)
        bounded = RangedInt(scaled, -(1 << 16), 1 << 16)
        return i.clamp(i.plus(bounded, int(op.args["output_zp"])), *dtype_range(out))

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
    data, scale = op.args["input"], op.args["scale"]
    if len(data.bound) != 4 or len(result_of(op).bound) != 4:
        raise IntRangeError("not images")
    neighbors = source_positions(data.bound[1:3], scale, op.args["offset"], op.args["border"])
    if op.args["mode"] == "bilinear":
        rows, columns = (ResizeAxis.between(*pair, int(n)) for pair, n in zip(neighbors, scale[::2], strict=True))
        return BilinearResize(data, (rows, columns), lambda i, x: x, int(scale[0]) * int(scale[2]))
    indices = _identity_indices(data)
    indices[1:3] = [nearest_index(*pair, n) for pair, n in zip(neighbors, scale[::2], strict=True)]
    return IndexGather(data, indices)


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
