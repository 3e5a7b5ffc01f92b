"""Machine code for exact integer arithmetic (``ir/int_arithmetic.py``): vectors with bounds of their values.

Every result gets the narrowest type that holds its bounds, int32 or int64, so that no operation can overflow.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.math_float32 import FUNCTIONS
from edgewright.engine.codegen.requant import make_rescale
from edgewright.engine.codegen.vector import clamp, int_max, int_min, round_to_int, to_float32
from edgewright.ir.int_arithmetic import IntArithmetic, IntRangeError, RangedInt
from edgewright.ir.requant_scale import ROUNDINGS

_BOUNDS = {"i32": 1 << 31, "i64": 1 << 63}
_INT32 = -(1 << 31), (1 << 31) - 1


def _smallest_type(low: int, high: int) -> str:
    for kind, maximum in _BOUNDS.items():
        if -maximum <= low and high < maximum:
            return kind
    raise IntRangeError(f"{low} to {high}")


class RangedIntBuilder(IntArithmetic):
    """Emits ranged integer arithmetic into a function."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.lanes = f, lanes

    # ------------------------------------------------------------------------------------------------------ memory

    def load(self, reg: Reg, low: int, high: int, moved: int) -> RangedInt:
        """A stored value with known bounds. ``moved`` is the storage offset: 128 for int8."""
        if element_type(reg.type) == "i64":
            return RangedInt(reg, low, high)
        if high >= 1 << 31 and element_type(reg.type) == "i32":
            raise IntRangeError("uint32 may exceed int32")
        wide = self.f.cast("zext" if low + moved >= 0 else "sext", reg, vec(lane_count(reg.type), "i32"))
        return RangedInt(self.f.add(wide, -moved), low, high)

    def store(self, x: RangedInt, bits: int, moved: int) -> Reg:
        """Truncate or extend to ``bits``, after adding the storage offset."""
        widened = self.f.add(x.data, moved)
        have = int(element_type(widened.type)[1:])
        return self.f.cast("trunc" if bits < have else "sext", widened, vec(lane_count(widened.type), f"i{bits}"))

    # -------------------------------------------------------------------------------------------------- arithmetic

    def constant(self, value: int) -> RangedInt:
        return RangedInt(const(value, vec(self.lanes, _smallest_type(value, value))), value, value)

    def wide(self, x: RangedInt, kind: str) -> Reg:
        return self.f.cast("sext", x.data, vec(lane_count(x.data.type), kind))

    def combine(self, name: str, a: RangedInt, b: RangedInt, low: int, high: int) -> RangedInt:
        kind = max(_smallest_type(low, high), element_type(a.data.type), element_type(b.data.type))
        x, y = self.wide(a, kind), self.wide(b, kind)
        if name in ("smax", "smin"):
            return RangedInt((int_max if name == "smax" else int_min)(self.f, x, y), low, high)
        return RangedInt(self.f.op(name, x, y), low, high)

    def shift_right(self, a: RangedInt, bits: int) -> RangedInt:
        return RangedInt(self.f.op("ashr", a.data, bits), a.low >> bits, a.high >> bits)

    def shift_right_each(self, a: RangedInt, bits: RangedInt, rounded: bool) -> RangedInt:
        f, kind = self.f, "i32" if bits.fits(0, 31) else "i64"
        x, count = self.wide(a, kind), self.wide(bits, kind)
        last = const(int(kind[1:]) - 1, x.type)
        result = f.op("ashr", x, int_min(f, count, last, signed=False))
        if rounded:
            rounding_bit = f.op("and", f.op("ashr", x, int_min(f, f.add(count, -1), last, signed=False)), 1)
            positive_count = f.compare("sgt", count, 0)
            result = f.op("add", result, f.select(positive_count, rounding_bit, const(0, x.type)))
        return self.narrow(RangedInt(result, min(a.low, 0), max(a.high, 0)))  # rounding does not exceed the operand

    def shift_logical(self, a: RangedInt, bits: RangedInt, left: bool, width: int) -> RangedInt:
        f = self.f
        if width > 32 or any("i64" in x.data.type for x in (a, bits)):
            raise IntRangeError("shift of more than 32 bits")
        unsigned = a.data if left or width == 32 else f.op("and", a.data, (1 << width) - 1)
        result = f.op("shl" if left else "lshr", unsigned, f.op("and", bits.data, 31))
        if not bits.fits(0, 31):
            result = f.select(f.compare("ult", bits.data, 32), result, const(0, result.type))
        if width < 32:  # sign-extend
            result = f.op("ashr", f.op("shl", result, 32 - width), 32 - width)
        half = 1 << (width - 1)
        if left and bits.fits(0, width - 1):
            products = [n << b for n in (a.low, a.high) for b in (bits.low, bits.high)]
            if min(products) >= -half and max(products) < half:
                return RangedInt(result, min(products), max(products))
        return RangedInt(result, -half, half - 1)

    def _common_width(self, a: RangedInt, b: RangedInt) -> tuple[Reg, Reg]:
        kind = max(element_type(a.data.type), element_type(b.data.type))
        return self.wide(a, kind), self.wide(b, kind)

    def compare(self, predicate: str, a: RangedInt, b: RangedInt) -> RangedInt:
        return self._as_int(self.f.compare(predicate, *self._common_width(a, b)))

    def _as_int(self, mask: Reg) -> RangedInt:
        return RangedInt(self.f.cast("zext", mask, vec(lane_count(mask.type), "i32")), 0, 1)

    def select(self, condition: RangedInt, on_true: RangedInt, on_false: RangedInt) -> RangedInt:
        x, y = self._common_width(on_true, on_false)
        mask = self.f.compare("ne", condition.data, 0)
        return RangedInt(self.f.select(mask, x, y), min(on_true.low, on_false.low), max(on_true.high, on_false.high))

    def bitwise(self, name: str, a: RangedInt, b: RangedInt) -> RangedInt:
        result = self.f.op(name, *self._common_width(a, b))
        bits = max(n.bit_length() if n >= 0 else (~n).bit_length() for n in (a.low, a.high, b.low, b.high))
        low = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits)
        return RangedInt(result, low, (1 << bits) - 1)

    def leading_zeros(self, a: RangedInt) -> RangedInt:
        kind = a.data.type
        suffix = f"v{self.lanes}i32" if self.lanes > 1 else "i32"
        if "i64" in kind:
            raise IntRangeError("64-bit operand")
        self.f.module.declare(f"declare {kind} @llvm.ctlz.{suffix}({kind}, i1)")
        return RangedInt(self.f.emit(kind, f"call {kind} @llvm.ctlz.{suffix}({kind} {a.data}, i1 false)"), 0, 32)

    def divide(self, a: RangedInt, b: RangedInt) -> RangedInt:
        f, bound = self.f, max(-a.low, a.high)
        if b.low == b.high and b.low > 0:
            return RangedInt(f.op("sdiv", *self._common_width(a, b)), -(bound // b.low), bound // b.low)
        x, y = self.wide(a, "i64"), self.wide(b, "i64")
        if bound >= 1 << 63:
            raise IntRangeError("the quotient may exceed 64 bits")
        safe = f.select(f.compare("eq", y, 0), const(1, y.type), y)
        return RangedInt(f.op("sdiv", x, safe), -bound, bound)

    def lookup(self, entries: Sequence[int], index: RangedInt) -> RangedInt:
        if not index.fits(0, len(entries) - 1):
            raise IntRangeError("index outside the table")
        f, lanes, low, high = self.f, self.lanes, min(entries), max(entries)
        name = f"entries{zlib.crc32(repr(list(entries)).encode()):08x}"
        base = f.module.constant_array(name, list(entries), "i32")
        if lanes == 1:
            return RangedInt(f.load("i32", f.gep(base, f.cast("sext", f.mul(index.data, 4), "i64"))), low, high)
        kind = index.data.type
        pointers = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {base}, {kind} {index.data}")
        all_lanes, align = Reg("splat (i1 true)", f"<{lanes} x i1>"), Reg("4", "i32")
        gather = f"llvm.masked.gather.v{lanes}i32.v{lanes}p0"
        return RangedInt(f.call(gather, kind, pointers, align, all_lanes, Reg("zeroinitializer", kind)), low, high)

    def wrap(self, a: RangedInt, bits: int) -> RangedInt:
        half = 1 << (bits - 1)
        if a.fits(-half, half - 1):
            return self.narrow(a) if bits <= 32 else a
        if bits != 32:
            raise IntRangeError("not a 32-bit result")
        return RangedInt(self.f.cast("trunc", a.data, vec(lane_count(a.data.type), "i32")), *_INT32)

    def narrow(self, a: RangedInt) -> RangedInt:
        if element_type(a.data.type) == "i64" and _smallest_type(a.low, a.high) == "i32":
            return RangedInt(self.f.cast("trunc", a.data, vec(lane_count(a.data.type), "i32")), a.low, a.high)
        return a

    # ---------------------------------------------------------------------------------------------------- rescaling

    def rescale(self, a: RangedInt, multiplier: int, shift: int, rounding: str) -> RangedInt:
        min_shift = 1 if rounding == "twice" else 2
        if not (0 <= multiplier < 1 << 31 and min_shift <= shift <= 62):
            raise IntRangeError(f"{multiplier} >> {shift}")
        low, high = (_reference_rescale(rounding, n, multiplier, shift) for n in (a.low, a.high))
        a = self.narrow(a)
        if element_type(a.data.type) == "i64":
            return self._rescale_wide(a, multiplier, shift, rounding, low, high)
        if rounding == "twice" and max(-a.low, a.high) >= 1 << 30 and shift > 31:
            raise IntRangeError("the rounding term would overflow int32")
        kind = a.data.type
        may_overflow = max(-low, high) >= 1 << 30 or shift < 31
        result = make_rescale(self.f, rounding, const(multiplier, kind), const(shift, kind), may_overflow)(a.data)
        return RangedInt(result, max(low, _INT32[0]), min(high, _INT32[1]))

    def rescale_each(
        self, a: RangedInt, multiplier: RangedInt, shift: RangedInt, rounding: str, bound: int | None = None
    ) -> RangedInt:
        if multiplier.low < 0 or not shift.fits(2, 62) or rounding == "twice":
            raise IntRangeError(f"{multiplier.low} to {multiplier.high} >> {shift.low} to {shift.high}")
        a = self.narrow(a)
        if element_type(a.data.type) == "i64":
            raise IntRangeError("more than 32 bits")
        result = make_rescale(self.f, rounding, multiplier.data, shift.data, bound is None)(a.data)
        return RangedInt(result, *_INT32) if bound is None else RangedInt(result, -bound, bound)

    def _rescale_wide(self, a: RangedInt, multiplier: int, shift: int, rounding: str, low: int, high: int) -> RangedInt:
        """Rescale an int64 vector: one rounding, ties up; the product must fit in 64 bits."""
        if rounding != "single" or max(-a.low, a.high) * multiplier + (1 << shift) >= 1 << 62:
            raise IntRangeError("more than 64 bits")
        moved = self.f.add(self.f.mul(a.data, multiplier), 1 << (shift - 1))
        return self.narrow(RangedInt(self.f.op("ashr", moved, shift), low, high))

    # ------------------------------------------------------------------------------------------------------ float32

    def to_float(self, a: RangedInt) -> Reg:
        return to_float32(self.f, a.data)

    def float_bits(self, a: RangedInt) -> Reg:
        return self.f.bitcast(a.data, vec(lane_count(a.data.type), "float"))

    def float_op(self, name: str, a: Reg, b: Reg | float) -> Reg:
        return self.f.op(f"f{name}", a, _as_reg(b, a))

    def float_function(self, name: str, a: Reg) -> Reg:
        return FUNCTIONS[name](self.f, a)

    def float_clamp(self, a: Reg, low: float, high: float) -> Reg:
        return clamp(self.f, a, low, high)

    def float_compare(self, predicate: str, a: Reg, b: Reg | float) -> RangedInt:
        return self._as_int(self.f.compare(predicate, a, _as_reg(b, a)))

    def float_select(self, predicate: str, a: Reg, b: Reg | float, on_true: Reg, on_false: Reg | float) -> Reg:
        return self.f.select(self.f.compare(predicate, a, _as_reg(b, a)), on_true, _as_reg(on_false, a))

    def float_choose(self, condition: RangedInt, on_true: Reg, on_false: Reg) -> Reg:
        return self.f.select(self.f.compare("ne", condition.data, 0), on_true, on_false)

    def to_int(self, a: Reg, low: int, high: int, rounded: bool = True) -> RangedInt:
        integers = round_to_int(self.f, a) if rounded else self.f.cast("fptosi", a, vec(lane_count(a.type), "i32"))
        return RangedInt(integers, low, high)


def _as_reg(number: Reg | float, like: Reg) -> Reg:
    return number if isinstance(number, Reg) else const(float(number), like.type)


def _reference_rescale(rounding: str, value: int, multiplier: int, shift: int) -> int:
    """The reference's result for one value, in Python integers where int64 could overflow."""
    if rounding == "single":
        return (value * multiplier + (1 << (shift - 1))) >> shift
    result = ROUNDINGS[rounding](np.asarray([value]), np.asarray([multiplier]), np.asarray([shift]))
    return int(result[0])
