"""Exact sums of integers brought to a result's scale by real factors, as ``ir/float_scale.py`` has it."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.requant import Affine
from edgewright.engine.codegen.vector import clamp, to_float32
from edgewright.ir.float_scale import FloatScale

MAX_EXACT_INT = 1 << 51  # whole numbers below are made of double precision by adding and taking off
_ONES = 1.5 * 2.0**52  # in double precision, its last bit is worth 1
_BITS = 0x4338000000000000  # the same, as bits


def to_float64(f: Function, x: Reg) -> Reg:
    """Whole numbers in double precision: of 32 bits, or of 64 that are below ``MAX_EXACT_INT``."""
    wide = vec(lane_count(x.type), "double")
    if element_type(x.type) == "i32":
        return f.cast("sitofp", x, wide)
    return f.op("fsub", f.bitcast(f.op("add", x, const(_BITS, x.type)), wide), const(_ONES, wide))


def round_to_int32(f: Function, x: Reg) -> Reg:
    """The nearest integer, the even one of two, in 32 bits: numbers must be within those."""
    lanes = lane_count(x.type)
    return f.cast("trunc", f.bitcast(f.op("fadd", x, const(_ONES, x.type)), vec(lanes, "i64")), vec(lanes, "i32"))


def rescale_float(f: Function, total: Reg, scaling: FloatScale) -> Reg:
    """A sum as it is stored, in 32 bits, by the only factor there is."""
    (factor,), zero = scaling.factor, scaling.zero
    if scaling.rounding == "even":
        real = to_float32(f, total)
        return Affine(1.0, zero).whole(f, f.op("fmul", real, const(factor, real.type)), scaling.low, scaling.high)
    real = to_float64(f, total)
    inside = clamp(f, f.op("fmul", real, const(factor, real.type)), scaling.low - zero, scaling.high - zero)
    return f.add(round_to_int32(f, inside), zero)
