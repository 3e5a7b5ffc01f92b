"""Fixed-point requantization: int32 times a multiplier, shifted, rounded as in ``ir/requant_scale.py``.

A real factor m is represented as multiplier * 2**-shift with a 31-bit multiplier, so that rescaling an accumulator
needs no floating point (Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 2.2). Dialects disagree only on rounding: gemmlowp's kernels round twice
(SaturatingRoundingDoublingHighMul, then a rounding shift), others once.
32-bit lanes are multiplied to 64 bits, even and odd lanes separately, as pmuldq and smull take them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import int_max, int_min


def split_even_odd(f: Function, x: Reg, signed: bool = True) -> list[Reg]:
    """Even and odd 32-bit lanes, widened to 64 bits; a scalar is a single part."""
    lanes = lane_count(x.type)
    if lanes == 1:
        return [f.cast("sext" if signed else "zext", x, "i64")]
    both, right = f.bitcast(x, vec(lanes // 2, "i64")), "ashr" if signed else "lshr"
    return [f.op(right, f.op("shl", both, 32), 32), f.op(right, both, 32)]


def merge_even_odd(f: Function, parts: Sequence[Reg], bit: int = 0) -> Reg:
    """Bits [bit, bit + 32) of every 64-bit lane: the inverse of ``split_even_odd``."""
    if len(parts) == 1:
        moved = f.op("lshr", parts[0], bit) if bit else parts[0]
        return f.cast("trunc", moved, vec(lane_count(moved.type), "i32"))
    even = f.op("lshr", parts[0], bit) if bit else parts[0]
    odd = f.op("shl", parts[1], 32 - bit) if bit < 32 else parts[1]
    lanes = 2 * lane_count(even.type)
    low, high = (f.bitcast(x, vec(lanes, "i32")) for x in (even, odd))
    return f.shuffle(low, high, [i if i % 2 == 0 else lanes + i for i in range(lanes)])


def clamp_int(f: Function, x: Reg, low: int, high: int) -> Reg:
    return int_min(f, int_max(f, x, const(low, x.type)), const(high, x.type))


class SingleRounding:
    """One rounding of the 64-bit product. ``once``: ties away from zero; ``single``: ties up; ``double``: ties up,
    after a rounding at bit 31."""

    def __init__(self, f: Function, multiplier: Reg, shift: Reg, may_overflow: bool, rounding: str) -> None:
        self.f, self.may_overflow, self.rounding = f, may_overflow, rounding
        self.multipliers, self.shifts = split_even_odd(f, multiplier), split_even_odd(f, shift, signed=False)
        self.half = [f.op("shl", const(1, s.type), f.add(s, -1)) for s in self.shifts]

    def __call__(self, total: Reg) -> Reg:
        return merge_even_odd(
            self.f, [self._scale_lane_half(x, i) for i, x in enumerate(split_even_odd(self.f, total))]
        )

    def _scale_lane_half(self, x: Reg, i: int) -> Reg:
        f, shift = self.f, self.shifts[i]
        product = f.op("mul", x, self.multipliers[i])
        biased = f.op("add", product, self.half[i])
        if self.rounding == "once":
            biased = f.op("add", biased, f.op("ashr", product, 63))
        elif self.rounding == "double":
            sign = f.op("ashr", x, 63)
            rounding_bias = f.op("sub", f.op("xor", sign, 1 << 30), sign)
            biased = f.select(f.compare("ugt", shift, 31), f.op("add", biased, rounding_bias), biased)
        result = f.op("ashr", biased, shift)
        return clamp_int(f, result, -(1 << 31), (1 << 31) - 1) if self.may_overflow else result


class DoubleRounding:
    """Two roundings: of the product's high half, ties up; then of the shift, ties away from zero (gemmlowp)."""

    def __init__(self, f: Function, multiplier: Reg, shift: Reg, may_overflow: bool) -> None:
        self.f, self.may_overflow = f, may_overflow
        self.multipliers = split_even_odd(f, multiplier)
        zero = const(0, shift.type)
        self.bits = int_max(f, f.add(shift, -31), zero)
        self.up = int_max(f, f.op("sub", const(31, shift.type), shift), zero) if may_overflow else None
        self.half = f.op("lshr", f.op("shl", const(1, shift.type), self.bits), 1)

    def __call__(self, total: Reg) -> Reg:
        f = self.f
        if self.up is not None:
            total = self._shift_left_saturated(total, self.up)
        parts = [f.op("mul", x, m) for x, m in zip(split_even_odd(f, total), self.multipliers, strict=True)]
        upper = merge_even_odd(f, [f.add(p, 1 << 30) for p in parts], 31)
        below = f.call(f"llvm.umin.{_suffix(upper)}", upper.type, f.op("lshr", upper, 31), self.half)
        return f.op("ashr", f.op("add", upper, f.op("sub", self.half, below)), self.bits)

    def _shift_left_saturated(self, total: Reg, up: Reg) -> Reg:
        """Multiply by a power of two, saturating to int32."""
        f, int32_max = self.f, const((1 << 31) - 1, total.type)
        limit = f.op("ashr", int32_max, up)
        inside = int_min(f, int_max(f, total, f.op("sub", const(0, total.type), limit)), limit)
        return f.op("shl", inside, up)


def _suffix(x: Reg) -> str:
    return f"v{lane_count(x.type)}i32" if lane_count(x.type) > 1 else "i32"


Rescale = Callable[[Reg], Reg]


def make_rescale(f: Function, rounding: str, multiplier: Reg, shift: Reg, may_overflow: bool) -> Rescale:
    """An emitter that multiplies int32 by a fixed-point factor.

    ``may_overflow``: results may overflow int32, or factors may be 1 or more.
    """
    return (
        DoubleRounding(f, multiplier, shift, may_overflow)
        if rounding == "twice"
        else SingleRounding(f, multiplier, shift, may_overflow, rounding)
    )
