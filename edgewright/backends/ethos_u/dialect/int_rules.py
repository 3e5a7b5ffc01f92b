"""Rules for TOSA's elementwise integer operators, bit-exact with ``backends/ethos_u/dialect``."""

from __future__ import annotations

import zlib

import numpy as np

from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import int_min
from edgewright.engine.dialects.elementwise import Args, dtype_range, elementwise_rule, result_of
from edgewright.ir.graph import Op


def _wrap_int32(i: RangedIntBuilder, op: Op, result: RangedInt) -> RangedInt:
    """Truncate to the result's 32 bits, wrapping as numpy does."""
    if result_of(op).dtype != np.dtype(np.int32):
        return result
    if result.low >= -(1 << 31) and result.high < 1 << 31:
        return i.narrow(result)
    kind = result.reg.type.replace("i64", "i32")
    return RangedInt(i.f.cast("trunc", result.reg, kind), -(1 << 31), (1 << 31) - 1)


@elementwise_rule("tosa.rescale")
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


@elementwise_rule("tosa.add")
def _add(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.add(*args))


@elementwise_rule("tosa.sub")
def _sub(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.sub(*args))


@elementwise_rule("tosa.mul")
def _mul(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    result, bits = i.mul(*args), int(op.args["shift"])
    if bits:
        result = i.shift_right(i.plus(result, 1 << (bits - 1)), bits)
    return _wrap_int32(i, op, result)


@elementwise_rule("tosa.clamp")
def _clamp(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    low, high = op.args["min_val"], op.args["max_val"]
    if low != int(low) or high != int(high):
        raise IntRangeError("limits are not integers")
    return i.clamp(args[0], int(low), int(high))


@elementwise_rule("tosa.abs")
def _abs(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return _wrap_int32(i, op, i.largest(args[0], i.sub(i.constant(0), args[0])))


@elementwise_rule("tosa.negate")
def _negate(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    result = i.sub(i.constant(int(op.args["output_zp"]) + int(op.args["input_zp"])), args[0])
    return i.clamp(result, *dtype_range(result_of(op)))


@elementwise_rule("tosa.identity")
def _identity(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return args[0]


@elementwise_rule("tosa.cast")
def _cast(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    if op.args["dtype"] == "bool":
        return i.compare("ne", args[0], i.constant(0))
    return args[0]  # the store rejects ranges that do not fit


@elementwise_rule("tosa.arithmetic_right_shift")
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


@elementwise_rule("tosa.logical_left_shift", "tosa.logical_right_shift")
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


@elementwise_rule("tosa.intdiv")
def _quotient(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    """Division toward zero; division by zero returns the dividend, and INT_MIN / -1 wraps as in numpy."""
    if result_of(op).dtype != np.dtype(np.int32):
        raise IntRangeError("not a 32-bit result")
    f, (a, b) = i.f, (i.wide(x, "i64") for x in args)
    is_zero = f.compare("eq", b, 0)
    result = f.op("sdiv", a, f.select(is_zero, const(1, b.type), b))
    return _wrap_int32(i, op, RangedInt(result, -(1 << 31), 1 << 31))


@elementwise_rule("tosa.table")
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


@elementwise_rule(*(f"tosa.{name}" for name in _COMPARISONS))
def _compare(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.compare(_COMPARISONS[op.kind.removeprefix("tosa.")], *args)


@elementwise_rule("tosa.select")
def _select(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return i.select(*args)


_BITWISE = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "logical_and": "and", "logical_or": "or",
    "logical_xor": "xor",
}  # fmt: skip


@elementwise_rule(*(f"tosa.{name}" for name in _BITWISE))
def _bitwise(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    return RangedInt(
        i.f.op(_BITWISE[op.kind.removeprefix("tosa.")], args[0].reg, args[1].reg), *dtype_range(result_of(op))
    )


@elementwise_rule("tosa.bitwise_not", "tosa.logical_not")
def _not(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    if op.kind.endswith("logical_not"):
        return i.sub(i.constant(1), args[0])
    return i.sub(i.constant(-1), args[0])


@elementwise_rule("tosa.clz")
def _leading_zeros(i: RangedIntBuilder, op: Op, args: Args) -> RangedInt:
    kind = args[0].reg.type
    suffix = f"v{i.lanes}i32" if i.lanes > 1 else "i32"
    if "i64" in kind:
        raise IntRangeError("64-bit operand")
    i.f.module.declare(f"declare {kind} @llvm.ctlz.{suffix}({kind}, i1)")
    result = i.f.emit(kind, f"call {kind} @llvm.ctlz.{suffix}({kind} {args[0].reg}, i1 false)")
    return RangedInt(result, 0, 32)
