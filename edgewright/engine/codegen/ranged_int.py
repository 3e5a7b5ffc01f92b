"""Ranged integer arithmetic: integer vectors with value bounds, tracked by interval arithmetic.

Every result gets the narrowest type that holds its bounds, int32 or int64, so that no operation can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.fixed_point import make_rescale
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.ir.requant_scale import ROUNDINGS

_BOUNDS = {"i32": 1 << 31, "i64": 1 << 63}


class IntRangeError(Exception):
    """The result would not fit in 64 bits, or the operation is not supported exactly."""


@dataclass(frozen=True)
class RangedInt:
    """An int32 or int64 vector with all elements in [low, high]."""

    reg: Reg
    low: int
    high: int


def _smallest_type(low: int, high: int) -> str:
    for kind, maximum in _BOUNDS.items():
        if -maximum <= low and high < maximum:
            return kind
    raise IntRangeError(f"{low} to {high}")


class RangedIntBuilder:
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

    def constant(self, value: int) -> RangedInt:
        return RangedInt(const(value, vec(self.lanes, _smallest_type(value, value))), value, value)

    def store(self, x: RangedInt, bits: int, moved: int) -> Reg:
        """Truncate or extend to ``bits``, after adding the storage offset."""
        widened = self.f.add(x.reg, moved)
        have = int(element_type(widened.type)[1:])
        return self.f.cast("trunc" if bits < have else "sext", widened, vec(lane_count(widened.type), f"i{bits}"))

    # -------------------------------------------------------------------------------------------------- arithmetic

    def wide(self, x: RangedInt, kind: str) -> Reg:
        return self.f.cast("sext", x.reg, vec(lane_count(x.reg.type), kind))

    def _two(self, name: str, a: RangedInt, b: RangedInt, low: int, high: int) -> RangedInt:
        kind = max(_smallest_type(low, high), element_type(a.reg.type), element_type(b.reg.type))
        return RangedInt(self.f.op(name, self.wide(a, kind), self.wide(b, kind)), low, high)

    def add(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self._two("add", a, b, a.low + b.low, a.high + b.high)

    def sub(self, a: RangedInt, b: RangedInt) -> RangedInt:
        return self._two("sub", a, b, a.low - b.high, a.high - b.low)

    def mul(self, a: RangedInt, b: RangedInt) -> RangedInt:
        products = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return self._two("mul", a, b, min(products), max(products))

    def plus(self, a: RangedInt, n: int) -> RangedInt:
        return a if n == 0 else self.add(a, self.constant(n))

    def shift_left(self, a: RangedInt, bits: int) -> RangedInt:
        return self.mul(a, self.constant(1 << bits))

    def shift_right(self, a: RangedInt, bits: int) -> RangedInt:
        return RangedInt(self.f.op("ashr", a.reg, bits), a.low >> bits, a.high >> bits)

    def largest(self, a: RangedInt, b: RangedInt) -> RangedInt:
        x, y = self._common_width(a, b)
        return RangedInt(int_max(self.f, x, y), max(a.low, b.low), max(a.high, b.high))

    def smallest(self, a: RangedInt, b: RangedInt) -> RangedInt:
        x, y = self._common_width(a, b)
        return RangedInt(int_min(self.f, x, y), min(a.low, b.low), min(a.high, b.high))

    def _common_width(self, a: RangedInt, b: RangedInt) -> tuple[Reg, Reg]:
        kind = max(element_type(a.reg.type), element_type(b.reg.type))
        return self.wide(a, kind), self.wide(b, kind)

    def clamp(self, a: RangedInt, low: int, high: int) -> RangedInt:
        if a.low < low:
            a = self.largest(a, self.constant(low))
        if a.high > high:
            a = self.smallest(a, self.constant(high))
        return a if a.low >= low else RangedInt(a.reg, low, a.high)

    def compare(self, predicate: str, a: RangedInt, b: RangedInt) -> RangedInt:
        """1 where the comparison holds, else 0."""
        mask = self.f.compare(predicate, *self._common_width(a, b))
        return RangedInt(self.f.cast("zext", mask, vec(lane_count(a.reg.type), "i32")), 0, 1)

    def select(self, condition: RangedInt, on_true: RangedInt, on_false: RangedInt) -> RangedInt:
        x, y = self._common_width(on_true, on_false)
        mask = self.f.compare("ne", condition.reg, 0)
        return RangedInt(self.f.select(mask, x, y), min(on_true.low, on_false.low), max(on_true.high, on_false.high))

    def narrow(self, a: RangedInt) -> RangedInt:
        """Truncate to int32 if the bounds allow."""
        if element_type(a.reg.type) == "i64" and _smallest_type(a.low, a.high) == "i32":
            return RangedInt(self.f.cast("trunc", a.reg, vec(lane_count(a.reg.type), "i32")), a.low, a.high)
        return a

    # ---------------------------------------------------------------------------------------------------- rescaling

    def rescale(self, a: RangedInt, multiplier: int, shift: int, rounding: str) -> RangedInt:
        """Multiply by a non-negative fixed-point factor, rounded as in ``ir/requant_scale.py``."""
        min_shift = 1 if rounding == "twice" else 2
        if not (0 <= multiplier < 1 << 31 and min_shift <= shift <= 62):
            raise IntRangeError(f"{multiplier} >> {shift}")
        low, high = (_reference_rescale(rounding, n, multiplier, shift) for n in (a.low, a.high))
        a = self.narrow(a)
        if element_type(a.reg.type) == "i64":
            return self._rescale_wide(a, multiplier, shift, rounding, low, high)
        if rounding == "twice" and max(-a.low, a.high) >= 1 << 30 and shift > 31:
            raise IntRangeError("the rounding term would overflow int32")
        kind = a.reg.type
        may_overflow = max(-low, high) >= 1 << 30 or shift < 31
        result = make_rescale(self.f, rounding, const(multiplier, kind), const(shift, kind), may_overflow)(a.reg)
        bound = 1 << 31
        return RangedInt(result, max(low, -bound), min(high, bound - 1))

    def rescale_each(
        self,
        a: RangedInt,
        multiplier: RangedInt,
        shift: RangedInt,
        factors: tuple[int, int],
        shifts: tuple[int, int],
        rounding: str,
    ) -> RangedInt:
        """The same with a factor per element; ``factors`` and ``shifts`` are their bounds."""
        if factors[0] < 0 or shifts[0] < 2 or shifts[1] > 62 or rounding == "twice":
            raise IntRangeError(f"{factors} >> {shifts}")
        a = self.narrow(a)
        if element_type(a.reg.type) == "i64":
            raise IntRangeError("more than 32 bits")
        result = make_rescale(self.f, rounding, multiplier.reg, shift.reg, True)(a.reg)
        return RangedInt(result, -(1 << 31), (1 << 31) - 1)

    def _rescale_wide(self, a: RangedInt, multiplier: int, shift: int, rounding: str, low: int, high: int) -> RangedInt:
        """Rescale an int64 vector: one rounding, ties up; the product must fit in 64 bits."""
        if rounding != "single" or max(-a.low, a.high) * multiplier + (1 << shift) >= 1 << 62:
            raise IntRangeError("more than 64 bits")
        moved = self.f.add(self.f.mul(a.reg, multiplier), 1 << (shift - 1))
        return self.narrow(RangedInt(self.f.op("ashr", moved, shift), low, high))


def _reference_rescale(rounding: str, value: int, multiplier: int, shift: int) -> int:
    """The reference's result for one value, in Python integers where int64 could overflow."""
    if rounding == "single":
        return (value * multiplier + (1 << (shift - 1))) >> shift
    result = ROUNDINGS[rounding](np.asarray([value]), np.asarray([multiplier]), np.asarray([shift]))
    return int(result[0])
