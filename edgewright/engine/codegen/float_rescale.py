"""Floating-point requantization: exact integer sums times a real factor, rounded as in ``ir/requant_scale.py``."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.requant import Affine
from edgewright.engine.codegen.vector import clamp, to_float32
from edgewright.ir.requant_scale import FloatScale

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
