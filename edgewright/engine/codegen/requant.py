"""Quantize, dequantize and requantize, rounded as the backend's numerics require."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.vector import (
    clamp,
    int_max,
    int_min,
    nearest_int32,
    round_to_int,
    to_float32,
    widen_int8,
)
from edgewright.ir.graph import QParams
from edgewright.ir.numerics import Numerics
from edgewright.ir.requant_scale import FloatScale

# ---------------------------------------------------------------------------------------------------------- fixed point

# Fixed-point requantization: int32 times a multiplier, shifted, rounded as in ``ir/requant_scale.py``.
#
# A real factor m is represented as multiplier * 2**-shift with a 31-bit multiplier, so that rescaling an accumulator
# needs no floating point (Jacob et al., "Quantization and Training of Neural Networks for Efficient
# Integer-Arithmetic-Only Inference", section 2.2). Dialects disagree only on rounding: gemmlowp's kernels round twice
# (SaturatingRoundingDoublingHighMul, then a rounding shift), others once.
# 32-bit lanes are multiplied to 64 bits, even and odd lanes separately, as pmuldq and smull take them.


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


# -------------------------------------------------------------------------------------------------------------- requant

# Quantize, dequantize and requantize, rounded as the backend's numerics require.
#
# The engine stores int8 tensors as uint8 with an offset of 128: zero points and limits here refer to that storage.


@dataclass(frozen=True)
class Affine:
    """Per-tensor affine quantization of an 8-bit tensor."""

    scale: float
    zero: int
    shift: int = 0  # the storage offset

    def real(self, f: Function, x: Reg) -> Reg:
        """Dequantize to float32."""
        centered = f.add(widen_int8(f, x), -self.zero)
        return f.op("fmul", to_float32(f, centered), const(self.scale, vec(lane_count(x.type), "float")))

    def quantize(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """Round values in units of the scale, add the zero point and clamp; the result is int32."""
        clamped = clamp(f, scaled, low - self.zero, high - self.zero)
        return f.add(round_to_int(f, clamped), self.zero)

    def store(self, f: Function, scaled: Reg, low: int, high: int) -> Reg:
        """The same as uint8."""
        return f.cast("trunc", self.quantize(f, scaled, low, high), vec(lane_count(scaled.type), "i8"))


def quantize_to_int32(f: Function, x: Reg, affine: Affine, low: int, high: int) -> Reg:
    """Quantize float32 to the stored value, in int32; NaN becomes 0."""
    inverse = np.float32(1) / np.float32(affine.scale)
    scaled = f.op("fmul", x, const(float(inverse), x.type))
    ordered = f.select(f.compare("ord", scaled, scaled), scaled, const(affine.shift - affine.zero, x.type))
    return affine.quantize(f, ordered, low, high)


def quantize_to_uint8(f: Function, x: Reg, affine: Affine, low: int, high: int) -> Reg:
    """Quantize float32 to uint8 storage."""
    return f.cast("trunc", quantize_to_int32(f, x, affine, low, high), vec(lane_count(x.type), "i8"))


def storage_offset(q: QParams) -> int:
    """The offset the engine adds to a stored value: 128 for int8."""
    return 128 if q.dtype == np.dtype(np.int8) else 0


def scale_of(q: QParams) -> np.float32:
    return np.float32(np.asarray(q.scale).reshape(()))


def affine_of(q: QParams) -> Affine:
    return Affine(float(scale_of(q)), int(np.asarray(q.zero_point)) + storage_offset(q), storage_offset(q))


def clamp_limits(numerics: Numerics, q: QParams, limits: tuple[float, float] | None) -> tuple[int, int]:
    """The smallest and the largest stored value of a result."""
    low, high = numerics.limits(q, limits)
    return low + storage_offset(q), high + storage_offset(q)


Requantize = Callable[[Reg], Reg]
_MAX_MAGNITUDE = 1.0e9  # beyond any limit, within int32


def _float32_half_even(f: Function, words: Sequence[Reg], may_overflow: bool) -> Requantize:
    """Scale in float32, round once, ties to even."""

    def requantize(total: Reg) -> Reg:
        scaled = f.op("fmul", to_float32(f, total), words[0])
        return nearest_int32(f, clamp(f, scaled, -_MAX_MAGNITUDE, _MAX_MAGNITUDE) if may_overflow else scaled)

    return requantize


@dataclass(frozen=True)
class Requantizer:
    """A requantization scheme.

    ``factor_words``: the LLVM types of the 32-bit words of each channel's factor. ``emit`` takes vectors of them, and
    whether results may overflow int32.
    """

    factor_words: tuple[str, ...]
    emit: Callable[[Function, Sequence[Reg], bool], Requantize]
    nothing: tuple[int, ...]  # the words of padding channels


def _fixed_point(name: str) -> Requantizer:
    return Requantizer(("i32", "i32"), lambda f, words, far: make_rescale(f, name, words[0], words[1], far), (0, 1))


# From int32 accumulators to the output's integers, before the zero point is added.
REQUANTIZERS: dict[str, Requantizer] = {
    "even": Requantizer(("float",), _float32_half_even, (0,)),
    **{name: _fixed_point(name) for name in ("single", "double", "twice", "once")},
}

# -------------------------------------------------------------------------------------------------------- float rescale

# Floating-point requantization: exact integer sums times a real factor, rounded as in ``ir/requant_scale.py``.

# The magic-number conversion (Hacker's Delight, chapter 17): the unit in the last place of a float64 near 1.5 * 2**52
# is 1, so adding that constant rounds to an integer and leaves it in the low mantissa bits, and adding an integer to
# the constant's bit pattern converts it to float64. AVX2 has no instruction for int64 <-> float64.
MAX_EXACT_INT = 1 << 51
_MAGIC = 1.5 * 2.0**52
_MAGIC_BITS = 0x4338000000000000


def to_float64(f: Function, x: Reg) -> Reg:
    """int32, or int64 below ``MAX_EXACT_INT``, as float64."""
    wide = vec(lane_count(x.type), "double")
    if element_type(x.type) == "i32":
        return f.cast("sitofp", x, wide)
    return f.op("fsub", f.bitcast(f.op("add", x, const(_MAGIC_BITS, x.type)), wide), const(_MAGIC, wide))


def round_to_int32(f: Function, x: Reg) -> Reg:
    """Round to int32, ties to even; values must be in range."""
    lanes = lane_count(x.type)
    return f.cast("trunc", f.bitcast(f.op("fadd", x, const(_MAGIC, x.type)), vec(lanes, "i64")), vec(lanes, "i32"))


def rescale_float(f: Function, total: Reg, scaling: FloatScale) -> Reg:
    """Requantize a sum with a per-tensor factor; the result is int32."""
    (factor,), zero = scaling.factor, scaling.zero
    if scaling.rounding == "even":
        real = to_float32(f, total)
        return Affine(1.0, zero).quantize(f, f.op("fmul", real, const(factor, real.type)), scaling.low, scaling.high)
    real = to_float64(f, total)
    inside = clamp(f, f.op("fmul", real, const(factor, real.type)), scaling.low - zero, scaling.high - zero)
    return f.add(round_to_int32(f, inside), zero)
