"""Vectorized float32 functions of one argument, with the error bound each is tested against."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np

from edgewright.engine.codegen.builder import I64, Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float64 import ROUNDED_FROM_FLOAT64, select_where
from edgewright.engine.codegen.vector import (
    X86,
    clamp,
    fast_min,
    fma,
    permute_float32,
    polynomial,
    round_to_int,
    scalef,
    split_integer_fraction,
    to_float32,
)
from edgewright.ir.graph import Array

# --------------------------------------------------------------------------------------------------------- trigonometry

# Sine, cosine and tangent over the entire float32 range, by table-driven argument reduction.
#
# The angle is ``m * 2**e`` with a 24-bit ``m``, and only its remainder modulo pi/2 and the quadrant modulo 4 matter.
# For every exponent ``e`` a table holds ``2/pi * 2**e mod 4`` in two parts: a 29-bit head, whose product with ``m`` is
# exact in float64, and the remainder. This is Payne and Hanek's reduction ("Radian reduction for trigonometric
# functions", 1983) with the digits of 2/pi selected ahead of time, which float32's 256 exponents make affordable.

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


# --------------------------------------------------------------------------------------------------------- math float32

# Vectorized float32 functions of one argument, with the error bound each is tested against.
#
# Errors are in ulp of the result over all finite float32 arguments, unless stated otherwise. The method throughout is
# range reduction plus a polynomial: an identity maps the argument to a small interval, a minimax polynomial or one at
# Chebyshev nodes approximates the function there, and the identity is undone. See Muller, "Elementary Functions:
# Algorithms and Implementation".

Float32Function = Callable[..., Reg]
FUNCTIONS: dict[str, Float32Function] = {}


def register_function(name: str) -> Callable[[Float32Function], Float32Function]:
    def register(emit: Float32Function) -> Float32Function:
        FUNCTIONS[name] = emit
        return emit

    return register


def _intrinsic(name: str) -> Float32Function:
    def call(f: Function, x: Reg) -> Reg:
        return f.call(
            f"llvm.{name}.v{lane_count(x.type)}f32" if lane_count(x.type) > 1 else f"llvm.{name}.f32", x.type, x
        )

    return call


for _name, _intrinsic_name in {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil"}.items():
    FUNCTIONS[_name] = _intrinsic(_intrinsic_name)  # exact


@register_function("neg")
def neg(f: Function, x: Reg) -> Reg:
    return f.emit(x.type, f"fneg {x.type} {x}")


@register_function("square")
def square(f: Function, x: Reg) -> Reg:
    return f.op("fmul", x, x)


@register_function("rsqrt")
def rsqrt(f: Function, x: Reg) -> Reg:
    """Within 1 ulp."""
    return f.op("fdiv", const(1, x.type), FUNCTIONS["sqrt"](f, x))


@register_function("reciprocal")
def reciprocal(f: Function, x: Reg) -> Reg:
    return f.op("fdiv", const(1, x.type), x)


@register_function("sign")
def sign(f: Function, x: Reg) -> Reg:
    """The sign of NaN is 0."""
    one, zero = const(1, x.type), const(0, x.type)
    below = select_where(f, "olt", x, 0, const(-1, x.type), zero)
    return select_where(f, "ogt", x, 0, one, below)


@register_function("hardswish")
def hardswish(f: Function, x: Reg) -> Reg:
    """Rounded like the reference: every product and sum separately, no FMA."""
    inside = f.op("fadd", f.op("fmul", x, const(1 / 6, x.type)), const(0.5, x.type))
    return f.op("fmul", clamp(f, inside, 0, 1), x)


@register_function("leaky_relu")
def leaky_relu(f: Function, x: Reg, slope: float) -> Reg:
    return f.select(f.compare("olt", x, const(0, x.type)), f.op("fmul", x, const(slope, x.type)), x)


# exp(x) = 2**n * exp(r) with n = rint(x / ln 2), r = x - n ln 2, |r| <= ln(2)/2. The product n ln 2 would lose digits
# in float32, so ln 2 is split into a high part with trailing zero bits, whose products with n are exact, and a low part
# (Cody and Waite). The polynomial for exp(r) is minimax, with relative error 4e-9.
_EXP = [0.001381454563, 0.008368746521, 0.0416683908, 0.1666652039, 0.4999999343, 1.0, 1.0]
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _scale_by_power_of_two(f: Function, x: Reg, power: Reg) -> Reg:
    """x * 2**power for integral ``power`` in [-150, 129]; two multiplications keep subnormal results exact."""
    kind, lanes = x.type, lane_count(x.type)
    if lanes == 16 and f.module.arch == X86:
        return scalef(f, x, power)
    exponent = round_to_int(f, power)
    half = f.op("ashr", exponent, 1)
    for part in (half, f.op("sub", exponent, half)):
        x = f.op("fmul", x, f.bitcast(f.op("shl", f.add(part, 127), 23), kind))
    return x


@register_function("exp")
def exp(f: Function, x: Reg) -> Reg:
    """Within 1 ulp, also of subnormal results."""
    kind = x.type
    bounded = clamp(f, x, -104.0, 89.0)  # NaN propagates
    exponent = _intrinsic("rint")(f, f.op("fmul", bounded, const(_LOG2E, kind)))
    rest = fma(f, exponent, const(-_LN2_HIGH, kind), bounded)
    rest = fma(f, exponent, const(-_LN2_LOW, kind), rest)
    return _scale_by_power_of_two(f, polynomial(f, rest, _EXP), exponent)


# 2**r for |r| <= 1/2: minimax, relative error 1.1e-7
_EXP2 = [c * math.log(2) ** (5 - i) for i, c in enumerate([0.00831250506, 0.0418903424, 0.1666711539, 0.4999923023])]


def exp2_nonpositive(f: Function, x: Reg) -> Reg:
    """2**x for x <= 0, within 3 ulp; subnormal results are flushed to 0. For softmax, where x = score - max."""
    kind = x.type
    exponent = _intrinsic("rint")(f, x)
    result = polynomial(f, f.op("fsub", x, exponent), [*_EXP2, math.log(2), 1.0])
    if lane_count(kind) == 16:
        result = _scale_by_power_of_two(f, result, exponent)
    else:
        shifted = f.op("shl", round_to_int(f, exponent), 23)
        result = f.bitcast(f.op("add", f.bitcast(result, shifted.type), shifted), kind)
    return f.select(f.compare("uge", x, const(-126, kind)), result, const(0, kind))


@register_function("sigmoid")
def sigmoid(f: Function, x: Reg) -> Reg:
    """Within 4 ulp."""
    one = const(1, x.type)
    return f.op("fdiv", one, f.op("fadd", one, exp(f, neg(f, x))))


@register_function("tanh")
def tanh(f: Function, x: Reg) -> Reg:
    """Within 4 ulp: 1 - 2 / (exp(2x) + 1), and an odd Taylor polynomial for |x| < 0.55, where that cancels."""
    kind, one = x.type, const(1, x.type)
    power = exp(f, f.op("fmul", clamp(f, x, -10, 10), const(2, kind)))
    from_exp = f.op("fsub", one, f.op("fdiv", const(2, kind), f.op("fadd", power, one)))
    squared = f.op("fmul", x, x)
    series = polynomial(f, squared, _TANH)
    from_series = fma(f, f.op("fmul", series, squared), x, x)
    return f.select(f.compare("olt", FUNCTIONS["abs"](f, x), const(0.55, kind)), from_series, from_exp)


# Taylor coefficients of (tanh(x) - x) / x**3 in x**2
_TANH = [6404582 / 10854718875, -929569 / 638512875, 21844 / 6081075, -1382 / 155925, 62 / 2835, -17 / 315, 2 / 15,
         -1 / 3]  # fmt: skip


@register_function("silu")
def silu(f: Function, x: Reg) -> Reg:
    return f.op("fmul", x, sigmoid(f, x))


@register_function("elu")
def elu(f: Function, x: Reg, alpha: float) -> Reg:
    """Within 4e-7 * alpha for negative arguments; exact otherwise."""
    zero = const(0, x.type)
    below = f.op("fmul", f.op("fsub", exp(f, fast_min(f, x, zero)), const(1, x.type)), const(alpha, x.type))
    return f.select(f.compare("olt", x, zero), below, x)


@register_function("gelu")
def gelu(f: Function, x: Reg) -> Reg:
    """Within 3e-7 * max(1, |x|); exact beyond 6.

    With 16 lanes, |x| * (Phi(|x|) - 1/2) + x / 2 uses a piecewise polynomial whose coefficients a register permute
    selects, which avoids the division of the rational erf.
    """
    if lane_count(x.type) != 16 or f.module.arch != X86:
        return f.op("fmul", x, _erf_rational(f, x, math.sqrt(0.5), 0.5, (0, 1)))
    size = FUNCTIONS["abs"](f, x)
    position = fast_min(f, f.op("fmul", size, const(16 / _GAUSSIAN_END, x.type)), const(15.5, x.type))
    index, rest = split_integer_fraction(f, position)
    coefficients = [permute_float32(f, table, index) for table in _constant_vectors(_gaussian_table())]
    share = coefficients[0]
    for c in coefficients[1:]:
        share = fma(f, share, rest, c)
    return fma(f, size, share, f.op("fmul", x, const(0.5, x.type)))


_GAUSSIAN_END = 5.6  # standard deviations; beyond, Phi(x) - 1/2 is 1/2 in float32


@cache
def _gaussian_table() -> Array:
    """Coefficients of erf(x / sqrt(2)) / 2 in 16 pieces of degree 4: [powers, highest first; pieces]. Within 1e-7.

    The last piece is the constant 1/2, for all larger arguments.
    """
    nodes = (1 - np.cos((2 * np.arange(5) + 1) / 10 * np.pi)) / 2
    areas = [[math.erf((k + at) * _GAUSSIAN_END / 16 / math.sqrt(2)) / 2 for at in nodes] for k in range(16)]
    areas[-1] = [0.5] * 5
    return np.asarray(np.linalg.solve(np.vander(nodes), np.transpose(areas))).round(12)


def _constant_vectors(rows: Array) -> list[Reg]:
    """Each row as a constant vector."""
    return [Reg("<" + ", ".join(f"float {const(x, 'float')}" for x in row) + ">", vec(len(row), "float"))
            for row in rows]  # fmt: skip


@register_function("gelu_tanh")
def gelu_tanh(f: Function, x: Reg) -> Reg:
    """Within 5e-7 * max(1, |x|)."""
    cubed = f.op("fmul", f.op("fmul", x, x), x)
    inside = f.op("fmul", fma(f, cubed, const(0.044715, x.type), x), const(math.sqrt(2 / math.pi), x.type))
    half = f.op("fmul", x, const(0.5, x.type))
    return fma(f, half, tanh(f, inside), half)


# erf(z)/z as a rational minimax approximation in z**2 for |z| <= 3.95, where erf reaches 1: error 2e-8
_ERF_NUMERATOR = [2.011721819e-06, 0.0002876014263, 0.003917381595, 0.0532072569, 0.1940372559, 1.128379006]
_ERF_DENOMINATOR = [3.78395385e-05, 0.001198215103, 0.015270831, 0.1155913905, 0.5052925283, 1.0]
_ERF_END = 3.95


def _erf_rational(f: Function, x: Reg, scale: float, middle: float, limits: tuple[float, float]) -> Reg:
    """erf(x * scale) mapped linearly from [-1, 1] to ``limits`` around ``middle``; the clamp removes rounding."""
    kind, half = x.type, (limits[1] - limits[0]) / 2
    bounded = clamp(f, x, -_ERF_END / scale, _ERF_END / scale)
    squared = f.op("fmul", bounded, bounded)
    powers = [scale ** (2 * n) for n in range(len(_ERF_DENOMINATOR) - 1, -1, -1)]
    numerator = [c * p * scale * half for c, p in zip(_ERF_NUMERATOR, powers, strict=True)]
    denominator = [c * p for c, p in zip(_ERF_DENOMINATOR, powers, strict=True)]
    ratio = f.op("fdiv", polynomial(f, squared, numerator), polynomial(f, squared, denominator))
    return clamp(f, fma(f, bounded, ratio, const(middle, kind)), *limits)


@register_function("erf")
def erf(f: Function, x: Reg) -> Reg:
    """Within 3e-7."""
    return _erf_rational(f, x, 1, -0.0, (-1, 1))


@register_function("log")
def log(f: Function, x: Reg) -> Reg:
    """Within 2 ulp. Negative arguments give NaN, 0 gives -inf."""
    kind, int_type = x.type, vec(lane_count(x.type), "i32")
    small = f.compare("olt", x, const(1.17549435e-38, kind))
    scaled = f.select(small, f.op("fmul", x, const(2.0**25, kind)), x)
    bits = f.bitcast(scaled, int_type)
    offset = f.op("sub", bits, 0x3F3504F3)  # sqrt(1/2): the mantissa is in [sqrt(1/2), sqrt(2))
    power = f.op("ashr", offset, 23)
    mantissa = f.bitcast(f.op("sub", bits, f.op("shl", power, 23)), kind)
    exponent = f.op("fsub", to_float32(f, power), f.select(small, const(25, kind), const(0, kind)))
    result = _log_near_one(f, f.op("fsub", mantissa, const(1, kind)), exponent)
    result = f.select(f.compare("oeq", x, const(math.inf, kind)), x, result)
    result = f.select(f.compare("oeq", x, const(0, kind)), const(-math.inf, kind), result)
    return f.select(f.compare("oge", x, const(0, kind)), result, const(math.nan, kind))


# log(1+r) = r - r*r/2 + r*r*r * p(r) for r in [sqrt(1/2)-1, sqrt(2)-1]: p interpolates at Chebyshev nodes, error 3e-8
_LOG = [0.07149753858, -0.115712007, 0.1166151107, -0.1241105069, 0.1424993653, -0.1666848024, 0.2000070748,
        -0.2499998905, 0.3333333119]  # fmt: skip


def _log_near_one(f: Function, r: Reg, exponent: Reg) -> Reg:
    kind = r.type
    squared = f.op("fmul", r, r)
    remainder = f.op("fmul", f.op("fmul", squared, r), polynomial(f, r, _LOG))
    remainder = fma(f, exponent, const(_LN2_LOW, kind), remainder)
    remainder = fma(f, squared, const(-0.5, kind), remainder)
    return fma(f, exponent, const(_LN2_HIGH, kind), f.op("fadd", r, remainder))


@register_function("round_to_fp16")
def round_to_fp16(f: Function, x: Reg) -> Reg:
    """Round to fp16 and back; exact."""
    return f.cast("fpext", f.cast("fptrunc", x, vec(lane_count(x.type), "half")), x.type)


def bf16_bits(f: Function, x: Reg) -> Reg:
    """The bf16 bit pattern, rounded to nearest even; NaN stays NaN."""
    int_type = vec(lane_count(x.type), "i32")
    bits = f.bitcast(x, int_type)
    odd = f.op("and", f.op("lshr", bits, 16), 1)
    rounded = f.op("lshr", f.add(f.op("add", bits, odd), 0x7FFF), 16)
    return f.select(f.compare("uno", x, x), f.op("or", f.op("lshr", bits, 16), 64), rounded)


@register_function("round_to_bf16")
def round_to_bf16(f: Function, x: Reg) -> Reg:
    """Round to bf16 and back; exact."""
    return f.bitcast(f.op("shl", bf16_bits(f, x), 16), x.type)


FUNCTIONS.update(ROUNDED_FROM_FLOAT64)
FUNCTIONS.update({"round": _intrinsic("rint"), "trunc": _intrinsic("trunc")})  # exact
FUNCTIONS.update({"sin": sin, "cos": cos, "tan": tan})
