"""Sine, cosine and tangent over the entire float32 range, by table-driven argument reduction.

The angle is ``m * 2**e`` with a 24-bit ``m``, and only its remainder modulo pi/2 and the quadrant modulo 4 matter. For
every exponent ``e`` a table holds ``2/pi * 2**e mod 4`` in two parts: a 29-bit head, whose product with ``m`` is exact
in float64, and the remainder. This is Payne and Hanek's reduction ("Radian reduction for trigonometric functions",
1983) with the digits of 2/pi selected ahead of time, which float32's 256 exponents make affordable.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from edgewright.engine.codegen.builder import I64, Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import fma, polynomial

_DIGITS = (  # of pi
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
    "328230664709384460955058223172535940812848111745028410270193852110555964462294895493038196"
)
_HALF_PI = float(Fraction(_DIGITS) / 2)
# Taylor coefficients in the square of an angle up to pi/4
_SINE = [1 / 362880, -1 / 5040, 1 / 120, -1 / 6]
_COSINE = [-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -0.5]


@cache
def quadrant_factors() -> tuple[list[float], list[float]]:
    """For each biased exponent, the factor from an angle to quadrants (multiples of pi/2) modulo 4, in two parts."""
    ratio, first, second = 2 / Fraction(_DIGITS), [], []
    for bits in range(256):
        if bits == 255:  # infinity or NaN
            first.append(float("nan"))
            second.append(0.0)
            continue
        unit = Fraction(2) ** (max(bits, 1) - 150)  # the value of m's last bit
        left = (ratio * unit) % 4
        scale = Fraction(2) ** (28 - left.numerator.bit_length() + left.denominator.bit_length())
        high = Fraction(int(left * scale)) / scale
        first.append(float(high / unit))
        second.append(float((left - high) / unit))
    return first, second


def _float64_const(value: float, lanes: int) -> Reg:
    text = f"0x{np.float64(value).view(np.uint64):016X}"
    return Reg(f"splat (double {text})" if lanes > 1 else text, vec(lanes, "double"))


def _gather_float64(f: Function, name: str, values: list[float], index: Reg) -> Reg:
    """Gather table entries, lane by lane."""
    lanes = lane_count(index.type)
    listed = [int(v) for v in np.array(values).view(np.int64)]
    base = f.module.constant_array(name, listed, "i64")
    kind = vec(lanes, "double")
    result = Reg("poison", kind)
    for i in range(lanes):
        lane_index = f.emit("i32", f"extractelement {index.type} {index}, i32 {i}") if lanes > 1 else index
        at = f.mul(f.cast("zext", lane_index, I64), 8)
        loaded = f.load("double", f.gep(base, at), align=8)
        result = f.emit(kind, f"insertelement {kind} {result}, double {loaded}, i32 {i}") if lanes > 1 else loaded
    return result


def _reduce_argument(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """|x| reduced to [-pi/4, pi/4], and the number of quadrants subtracted."""
    lanes = lane_count(x.type)
    int_type, wide = vec(lanes, "i32"), vec(lanes, "double")
    size = f.op("and", f.bitcast(x, int_type), 0x7FFFFFFF)
    exponent = f.op("lshr", size, 23)
    high, low = (_gather_float64(f, n, v, exponent) for n, v in zip(("turns", "rest"), quadrant_factors(), strict=True))
    angle = f.cast("fpext", f.bitcast(size, x.type), wide)
    product_high, product_low = f.op("fmul", angle, high), f.op("fmul", angle, low)
    suffix = f"v{lanes}f64" if lanes > 1 else "f64"
    quadrants = f.call(f"llvm.rint.{suffix}", wide, f.op("fadd", product_high, product_low))
    left = f.op("fadd", f.op("fsub", product_high, quadrants), product_low)
    finite_quadrants = f.select(f.compare("ord", quadrants, quadrants), quadrants, _float64_const(0, lanes))
    return f.cast("fptrunc", f.op("fmul", left, _float64_const(_HALF_PI, lanes)), x.type), f.cast(
        "fptosi", finite_quadrants, int_type
    )


def _sin_in_quadrant(f: Function, left: Reg, quadrant: Reg) -> Reg:
    """sin(left + quarter * pi/2): sine or cosine by the quadrant's parity, negated in quadrants 2 and 3."""
    kind = left.type
    squared = f.op("fmul", left, left)
    sine = fma(f, f.op("fmul", polynomial(f, squared, _SINE), squared), left, left)
    cosine = fma(f, polynomial(f, squared, _COSINE), squared, const(1, kind))
    odd = f.compare("ne", f.op("and", quadrant, 1), const(0, quadrant.type))
    flip = f.op("shl", f.op("and", quadrant, 2), 30)
    return f.bitcast(f.op("xor", f.bitcast(f.select(odd, cosine, sine), quadrant.type), flip), kind)


def sin(f: Function, x: Reg) -> Reg:
    """Within 2 ulp."""
    left, quadrant = _reduce_argument(f, x)
    int_type = quadrant.type
    sign = f.op("and", f.bitcast(x, int_type), -0x80000000)
    return f.bitcast(f.op("xor", f.bitcast(_sin_in_quadrant(f, left, quadrant), int_type), sign), x.type)


def cos(f: Function, x: Reg) -> Reg:
    """Within 2 ulp."""
    left, quadrant = _reduce_argument(f, x)
    return _sin_in_quadrant(f, left, f.add(quadrant, 1))


def tan(f: Function, x: Reg) -> Reg:
    """Within 5 ulp."""
    return f.op("fdiv", sin(f, x), cos(f, x))
