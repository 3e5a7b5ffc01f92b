"""TOSA's operators on single elements, as arithmetic on vectors of integers: what ``ir/tosa`` says in numpy."""

from __future__ import annotations

import zlib

import numpy as np

from edgewright.engine.codegen.builder import Reg, const
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.vector import int_min
from edgewright.engine.dialects.elementwise import Args, dtype_range, elementwise_rule, result_of
from edgewright.ir.graph import Op


def _wrapped(i: RangedIntBuilder, op: Op, made: RangedInt) -> RangedInt:
    """In the result's own bits: what is beyond them is lost, as in numpy."""
    if result_of(op).dtype != np.dtype(np.int32):
        return made
    if made.low >= -(1 << 31) and made.high < 1 << 31:
        return i.narrow(made)
    kind = made.reg.type.replace("i64", "i32")
    return RangedInt(i.f.cast("trunc", made.reg, kind), -(1 << 31), (1 << 31) - 1)


@elementwise_rule("tosa.rescale")
def _rescale(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    by, bits = (np.ravel(op.args[name].data) for name in ("multiplier", "shift"))
    x, rounding = i.plus(given[0], -op.args["input_zp"]), op.args["rounding"]
    if len(given) == 1:
        made = i.rescale(x, int(by[0]), int(bits[0]), rounding)
    else:
        made = i.rescale_each(x, given[1], given[2], (int(by.min()), int(by.max())), (int(bits.min()), int(bits.max())),
                              rounding)  # fmt: skip
    info = np.iinfo(op.args["dtype"])
    return i.clamp(i.plus(made, op.args["output_zp"]), int(info.min), int(info.max))


@elementwise_rule("tosa.add")
def _add(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return _wrapped(i, op, i.add(*given))


@elementwise_rule("tosa.sub")
def _sub(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return _wrapped(i, op, i.sub(*given))


@elementwise_rule("tosa.mul")
def _mul(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    made, bits = i.mul(*given), int(op.args["shift"])
    if bits:
        made = i.right(i.plus(made, 1 << (bits - 1)), bits)
    return _wrapped(i, op, made)


@elementwise_rule("tosa.clamp")
def _clamp(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    low, high = op.args["min_val"], op.args["max_val"]
    if low != int(low) or high != int(high):
        raise IntRangeError("limits between integers")
    return i.clamp(given[0], int(low), int(high))


@elementwise_rule("tosa.abs")
def _abs(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return _wrapped(i, op, i.largest(given[0], i.sub(i.constant(0), given[0])))


@elementwise_rule("tosa.negate")
def _negate(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    made = i.sub(i.constant(int(op.args["output_zp"]) + int(op.args["input_zp"])), given[0])
    return i.clamp(made, *dtype_range(result_of(op)))


@elementwise_rule("tosa.identity")
def _identity(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return given[0]


@elementwise_rule("tosa.cast")
def _cast(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    if op.args["dtype"] == "bool":
        return i.compare("ne", given[0], i.constant(0))
    return given[0]  # what does not fit is refused where it is stored


@elementwise_rule("tosa.arithmetic_right_shift")
def _right_shift(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    """Of 64 bits; numpy fills with the sign what is shifted by more than there are, or by less than none."""
    f, kind = i.f, "i32" if given[1].low >= 0 and given[1].high < 32 else "i64"
    a, bits = (i.wide(x, kind) for x in given)
    last = const(int(kind[1:]) - 1, a.type)
    made = f.op("ashr", a, int_min(f, bits, last, signed=False))
    low, high = min(given[0].low, 0), max(given[0].high, 0)  # half of it, rounded up, is no larger
    if op.args["round"]:
        half = f.op("and", f.op("ashr", a, int_min(f, f.add(bits, -1), last, signed=False)), 1)
        some = f.compare("sgt", bits, 0)
        made = f.op("add", made, f.select(some, half, const(0, a.type)))
    return i.narrow(RangedInt(made, low, high))


@elementwise_rule("tosa.logical_left_shift", "tosa.logical_right_shift")
def _shift(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    """Of the result's bits; nothing is left of what is shifted by more than there are."""
    f, (a, bits), dtype = i.f, given, result_of(op).dtype
    if dtype is None or dtype.kind != "i" or dtype.itemsize > 4 or any("i64" in x.reg.type for x in given):
        raise IntRangeError("shifts of more than 32 bits")
    size, left = 8 * dtype.itemsize, "left" in op.kind
    whole = a.reg if left or size == 32 else f.op("and", a.reg, (1 << size) - 1)
    made = f.op("shl" if left else "lshr", whole, f.op("and", bits.reg, 31))
    if not (bits.low >= 0 and bits.high < 32):
        made = f.select(f.compare("ult", bits.reg, 32), made, const(0, made.type))
    if size < 32:  # what is beyond is lost
        made = f.op("ashr", f.op("shl", made, 32 - size), 32 - size)
    if left and bits.low >= 0 and bits.high < size:
        ends = [n << b for n in (a.low, a.high) for b in (bits.low, bits.high)]
        if min(ends) >= -(1 << size - 1) and max(ends) < 1 << size - 1:
            return RangedInt(made, min(ends), max(ends))
    return RangedInt(made, *dtype_range(result_of(op)))


@elementwise_rule("tosa.intdiv")
def _quotient(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    """Towards zero; by zero, the dividend. The one quotient that 32 bits do not hold is cut, as in numpy."""
    if result_of(op).dtype != np.dtype(np.int32):
        raise IntRangeError("quotients of other than 32 bits")
    f, (a, b) = i.f, (i.wide(x, "i64") for x in given)
    nothing = f.compare("eq", b, 0)
    made = f.op("sdiv", a, f.select(nothing, const(1, b.type), b))
    return _wrapped(i, op, RangedInt(made, -(1 << 31), 1 << 31))


@elementwise_rule("tosa.table")
def _table(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    """8 bits: looked up. 16 bits: between two of 513 entries, with 7 more bits in the result."""
    entries = [int(n) for n in np.ravel(op.args["table"].data)]
    low, high = min(entries), max(entries)
    if op.args["input"].dtype == np.dtype(np.int8):
        return _looked_up(i, entries, i.plus(given[0], 128))
    at = i.plus(given[0], 1 << 15)
    first, part = i.right(at, 7), RangedInt(i.f.op("and", at.reg, 127), 0, 127)
    below, above = _looked_up(i, entries, first), _looked_up(i, entries, i.plus(first, 1))
    made = i.add(i.left(below, 7), i.mul(i.sub(above, below), part))
    return RangedInt(made.reg, low << 7, high << 7)  # between the two


def _looked_up(i: RangedIntBuilder, entries: list[int], at: RangedInt) -> RangedInt:
    if at.low < 0 or at.high >= len(entries):
        raise IntRangeError("beyond the table")
    f, lanes = i.f, i.lanes
    name = f"entries{zlib.crc32(repr(entries).encode()):08x}"
    place = f.module.constant_array(name, entries, "i32")
    if lanes == 1:
        return RangedInt(
            f.load("i32", f.gep(place, f.cast("sext", f.mul(at.reg, 4), "i64"))), min(entries), max(entries)
        )
    where = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {place}, {at.reg.type} {at.reg}")
    every = Reg("splat (i1 true)", f"<{lanes} x i1>")
    kind, align = at.reg.type, Reg("4", "i32")
    made = f.call(f"llvm.masked.gather.v{lanes}i32.v{lanes}p0", kind, where, align, every, Reg("zeroinitializer", kind))
    return RangedInt(made, min(entries), max(entries))


_COMPARED = {"equal": "eq", "greater": "sgt", "greater_equal": "sge"}


@elementwise_rule(*(f"tosa.{name}" for name in _COMPARED))
def _compare(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return i.compare(_COMPARED[op.kind.removeprefix("tosa.")], *given)


@elementwise_rule("tosa.select")
def _select(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return i.select(*given)


_BITWISE = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "logical_and": "and", "logical_or": "or",
    "logical_xor": "xor",
}  # fmt: skip


@elementwise_rule(*(f"tosa.{name}" for name in _BITWISE))
def _bitwise(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    return RangedInt(
        i.f.op(_BITWISE[op.kind.removeprefix("tosa.")], given[0].reg, given[1].reg), *dtype_range(result_of(op))
    )


@elementwise_rule("tosa.bitwise_not", "tosa.logical_not")
def _not(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    if op.kind.endswith("logical_not"):
        return i.sub(i.constant(1), given[0])
    return i.sub(i.constant(-1), given[0])


@elementwise_rule("tosa.clz")
def _leading_zeros(i: RangedIntBuilder, op: Op, given: Args) -> RangedInt:
    kind = given[0].reg.type
    suffix = f"v{i.lanes}i32" if i.lanes > 1 else "i32"
    if "i64" in kind:
        raise IntRangeError("of 64 bits")
    i.f.module.declare(f"declare {kind} @llvm.ctlz.{suffix}({kind}, i1)")
    made = i.f.emit(kind, f"call {kind} @llvm.ctlz.{suffix}({kind} {given[0].reg}, i1 false)")
    return RangedInt(made, 0, 32)
