"""Integers on vectors with what is known of them: the least and the largest each can be.

Results are as wide as their bounds ask for, 32 or 64 bits, so that nothing is ever lost that the reference would keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.fixed_point import scale
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.ir.fixed_point_scale import ROUNDINGS

_MOST = {"i32": 1 << 31, "i64": 1 << 63}


class NotWholeError(Exception):
    """What cannot be computed here without loss."""


@dataclass(frozen=True)
class Whole:
    """A vector of 32 or 64 bits, whose elements are from ``low`` to ``high``."""

    reg: Reg
    low: int
    high: int


def _kind(low: int, high: int) -> str:
    for kind, most in _MOST.items():
        if -most <= low and high < most:
            return kind
    raise NotWholeError(f"{low} to {high}")


class Integers:
    """Emits arithmetic."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.lanes = f, lanes

    # -------------------------------------------------------------------------------------------------------- ends

    def load(self, reg: Reg, low: int, high: int, moved: int) -> Whole:
        """What is stored between two bounds, plus ``moved``: signed bytes inside the engine are 128 higher."""
        if element_type(reg.type) == "i64":
            return Whole(reg, low, high)
        if high >= 1 << 31 and element_type(reg.type) == "i32":
            raise NotWholeError("may have any 32 bits without a sign")
        wide = self.f.cast("zext" if low + moved >= 0 else "sext", reg, vec(lane_count(reg.type), "i32"))
        return Whole(self.f.add(wide, -moved), low, high)

    def constant(self, value: int) -> Whole:
        return Whole(const(value, vec(self.lanes, _kind(value, value))), value, value)

    def store(self, x: Whole, bits: int, moved: int) -> Reg:
        """In so many bits, plus ``moved``."""
        whole = self.f.add(x.reg, moved)
        have = int(element_type(whole.type)[1:])
        return self.f.cast("trunc" if bits < have else "sext", whole, vec(lane_count(whole.type), f"i{bits}"))

    # -------------------------------------------------------------------------------------------------- arithmetic

    def wide(self, x: Whole, kind: str) -> Reg:
        return self.f.cast("sext", x.reg, vec(lane_count(x.reg.type), kind))

    def _two(self, name: str, a: Whole, b: Whole, low: int, high: int) -> Whole:
        kind = max(_kind(low, high), element_type(a.reg.type), element_type(b.reg.type))
        return Whole(self.f.op(name, self.wide(a, kind), self.wide(b, kind)), low, high)

    def add(self, a: Whole, b: Whole) -> Whole:
        return self._two("add", a, b, a.low + b.low, a.high + b.high)

    def sub(self, a: Whole, b: Whole) -> Whole:
        return self._two("sub", a, b, a.low - b.high, a.high - b.low)

    def mul(self, a: Whole, b: Whole) -> Whole:
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return self._two("mul", a, b, min(ends), max(ends))

    def plus(self, a: Whole, n: int) -> Whole:
        return a if n == 0 else self.add(a, self.constant(n))

    def left(self, a: Whole, bits: int) -> Whole:
        return self.mul(a, self.constant(1 << bits))

    def right(self, a: Whole, bits: int) -> Whole:
        return Whole(self.f.op("ashr", a.reg, bits), a.low >> bits, a.high >> bits)

    def largest(self, a: Whole, b: Whole) -> Whole:
        x, y = self._alike(a, b)
        return Whole(int_max(self.f, x, y), max(a.low, b.low), max(a.high, b.high))

    def smallest(self, a: Whole, b: Whole) -> Whole:
        x, y = self._alike(a, b)
        return Whole(int_min(self.f, x, y), min(a.low, b.low), min(a.high, b.high))

    def _alike(self, a: Whole, b: Whole) -> tuple[Reg, Reg]:
        kind = max(element_type(a.reg.type), element_type(b.reg.type))
        return self.wide(a, kind), self.wide(b, kind)

    def clamp(self, a: Whole, low: int, high: int) -> Whole:
        if a.low < low:
            a = self.largest(a, self.constant(low))
        if a.high > high:
            a = self.smallest(a, self.constant(high))
        return a if a.low >= low else Whole(a.reg, low, a.high)

    def compare(self, how: str, a: Whole, b: Whole) -> Whole:
        """1 where it holds, else 0."""
        truth = self.f.compare(how, *self._alike(a, b))
        return Whole(self.f.cast("zext", truth, vec(lane_count(a.reg.type), "i32")), 0, 1)

    def select(self, which: Whole, yes: Whole, no: Whole) -> Whole:
        x, y = self._alike(yes, no)
        truth = self.f.compare("ne", which.reg, 0)
        return Whole(self.f.select(truth, x, y), min(yes.low, no.low), max(yes.high, no.high))

    def narrow(self, a: Whole) -> Whole:
        """In 32 bits, if bounds allow."""
        if element_type(a.reg.type) == "i64" and _kind(a.low, a.high) == "i32":
            return Whole(self.f.cast("trunc", a.reg, vec(lane_count(a.reg.type), "i32")), a.low, a.high)
        return a

    # ---------------------------------------------------------------------------------------------------- rescaling

    def rescale(self, a: Whole, multiplier: int, shift: int, rounding: str) -> Whole:
        """Times a factor that is not negative, rounded as ``ir/fixed_point_scale.py`` has it."""
        least = 1 if rounding == "twice" else 2
        if not (0 <= multiplier < 1 << 31 and least <= shift <= 62):
            raise NotWholeError(f"{multiplier} >> {shift}")
        low, high = (_exactly(rounding, n, multiplier, shift) for n in (a.low, a.high))
        a = self.narrow(a)
        if element_type(a.reg.type) == "i64":
            return self._rescale_wide(a, multiplier, shift, rounding, low, high)
        if rounding == "twice" and max(-a.low, a.high) >= 1 << 30 and shift > 31:
            raise NotWholeError("a half is added to 32 bits")
        kind = a.reg.type
        far = max(-low, high) >= 1 << 30 or shift < 31
        made = scale(self.f, rounding, const(multiplier, kind), const(shift, kind), far)(a.reg)
        bound = 1 << 31
        return Whole(made, max(low, -bound), min(high, bound - 1))

    def rescale_each(
        self,
        a: Whole,
        multiplier: Whole,
        shift: Whole,
        factors: tuple[int, int],
        shifts: tuple[int, int],
        rounding: str,
    ) -> Whole:
        """The same by factors that are vectors themselves, between two bounds."""
        if factors[0] < 0 or shifts[0] < 2 or shifts[1] > 62 or rounding == "twice":
            raise NotWholeError(f"{factors} >> {shifts}")
        a = self.narrow(a)
        if element_type(a.reg.type) == "i64":
            raise NotWholeError("more than 32 bits")
        made = scale(self.f, rounding, multiplier.reg, shift.reg, True)(a.reg)
        return Whole(made, -(1 << 31), (1 << 31) - 1)

    def _rescale_wide(self, a: Whole, multiplier: int, shift: int, rounding: str, low: int, high: int) -> Whole:
        """Of more than 32 bits, by factors of fewer: one rounding, halves up."""
        if rounding != "single" or max(-a.low, a.high) * multiplier + (1 << shift) >= 1 << 62:
            raise NotWholeError("more than 64 bits")
        moved = self.f.add(self.f.mul(a.reg, multiplier), 1 << (shift - 1))
        return self.narrow(Whole(self.f.op("ashr", moved, shift), low, high))


def _exactly(rounding: str, value: int, multiplier: int, shift: int) -> int:
    """As the reference has it, in integers of any size where 64 bits may not do."""
    if rounding == "single":
        return (value * multiplier + (1 << (shift - 1))) >> shift
    made = ROUNDINGS[rounding](np.asarray([value]), np.asarray([multiplier]), np.asarray([shift]))
    return int(made[0])
