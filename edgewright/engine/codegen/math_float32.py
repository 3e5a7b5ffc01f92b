"""Real functions of one argument on vectors, with the error each is tested to keep.

Errors are in units of the last place of the result, over all finite single-precision arguments, unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.vector import (
    clamp,
    fast_min,
    fma,
    permute_float32,
    round_to_int,
    scalef,
    split_integer_fraction,
    to_float32,
)
from edgewright.engine.host_arch import is_aarch64
from edgewright.ir.graph import Array

Float32Function = Callable[..., Reg]
FUNCTIONS: dict[str, Float32Function] = {}


def register_function(name: str) -> Callable[[Float32Function], Float32Function]:
    def register(made: Float32Function) -> Float32Function:
        FUNCTIONS[name] = made
        return made

    return register


def _intrinsic(name: str) -> Float32Function:
    def call(f: Function, x: Reg) -> Reg:
        return f.call(
            f"llvm.{name}.v{lane_count(x.type)}f32" if lane_count(x.type) > 1 else f"llvm.{name}.f32", x.type, x
        )

    return call


for _name, _intrinsic_name in {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil"}.items():
    FUNCTIONS[_name] = _intrinsic(_intrinsic_name)  # exact


def polynomial(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    """The highest power's coefficient first."""
    total = const(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = fma(f, total, x, const(c, x.type))
    return total


@register_function("neg")
def neg(f: Function, x: Reg) -> Reg:
    return f.emit(x.type, f"fneg {x.type} {x}")


@register_function("square")
def square(f: Function, x: Reg) -> Reg:
    return f.op("fmul", x, x)


@register_function("rsqrt")
def rsqrt(f: Function, x: Reg) -> Reg:
    """Within 1."""
    return f.op("fdiv", const(1, x.type), FUNCTIONS["sqrt"](f, x))


@register_function("hardswish")
def hardswish(f: Function, x: Reg) -> Reg:
    """As the reference has it: each product and sum rounded."""
    inside = f.op("fadd", f.op("fmul", x, const(1 / 6, x.type)), const(0.5, x.type))
    return f.op("fmul", clamp(f, inside, 0, 1), x)


@register_function("leaky_relu")
def leaky_relu(f: Function, x: Reg, slope: float) -> Reg:
    return f.select(f.compare("olt", x, const(0, x.type)), f.op("fmul", x, const(slope, x.type)), x)


# exp(r) for |r| <= ln(2)/2: a fit of least largest error, 4e-9 of the result
_EXP = [0.001381454563, 0.008368746521, 0.0416683908, 0.1666652039, 0.4999999343, 1.0, 1.0]
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _scale_by_power_of_two(f: Function, x: Reg, power: Reg) -> Reg:
    """``power`` are whole numbers from -150 to 129, as reals; two steps keep results that are subnormal."""
    kind, lanes = x.type, lane_count(x.type)
    if lanes == 16 and not is_aarch64():
        return scalef(f, x, power)
    whole = round_to_int(f, power)
    half = f.op("ashr", whole, 1)
    for part in (half, f.op("sub", whole, half)):
        x = f.op("fmul", x, f.bitcast(f.op("shl", f.add(part, 127), 23), kind))
    return x


@register_function("exp")
def exp(f: Function, x: Reg) -> Reg:
    """Within 1; subnormal results within one step."""
    kind = x.type
    bounded = clamp(f, x, -104.0, 89.0)  # NaN stays what it is, and so does all that is made of it
    whole = _intrinsic("rint")(f, f.op("fmul", bounded, const(_LOG2E, kind)))
    rest = fma(f, whole, const(-_LN2_HIGH, kind), bounded)
    rest = fma(f, whole, const(-_LN2_LOW, kind), rest)
    return _scale_by_power_of_two(f, polynomial(f, rest, _EXP), whole)


# 2**r for |r| <= 1/2: a fit of least largest error, 1.1e-7 of the result
_EXP2 = [c * math.log(2) ** (5 - i) for i, c in enumerate([0.00831250506, 0.0418903424, 0.1666711539, 0.4999923023])]


def exp2_nonpositive(f: Function, x: Reg) -> Reg:
    """2**x, within 3, for x that are at most 0; what would not be normal is 0."""
    kind = x.type
    whole = _intrinsic("rint")(f, x)
    made = polynomial(f, f.op("fsub", x, whole), [*_EXP2, math.log(2), 1.0])
    if lane_count(kind) == 16:
        made = _scale_by_power_of_two(f, made, whole)
    else:
        shifted = f.op("shl", round_to_int(f, whole), 23)
        made = f.bitcast(f.op("add", f.bitcast(made, shifted.type), shifted), kind)
    return f.select(f.compare("uge", x, const(-126, kind)), made, const(0, kind))


@register_function("sigmoid")
def sigmoid(f: Function, x: Reg) -> Reg:
    """Within 4."""
    one = const(1, x.type)
    return f.op("fdiv", one, f.op("fadd", one, exp(f, neg(f, x))))


@register_function("tanh")
def tanh(f: Function, x: Reg) -> Reg:
    """Within 4. Near 0 an odd series; elsewhere by the exponential of the double."""
    kind, one = x.type, const(1, x.type)
    power = exp(f, f.op("fmul", clamp(f, x, -10, 10), const(2, kind)))
    far = f.op("fsub", one, f.op("fdiv", const(2, kind), f.op("fadd", power, one)))
    squared = f.op("fmul", x, x)
    series = polynomial(f, squared, _TANH)
    near = fma(f, f.op("fmul", series, squared), x, x)
    return f.select(f.compare("olt", FUNCTIONS["abs"](f, x), const(0.55, kind)), near, far)


# Taylor's terms of tanh(x)/x - 1 in x squared, without the first power
_TANH = [6404582 / 10854718875, -929569 / 638512875, 21844 / 6081075, -1382 / 155925, 62 / 2835, -17 / 315, 2 / 15,
         -1 / 3]  # fmt: skip


@register_function("silu")
def silu(f: Function, x: Reg) -> Reg:
    return f.op("fmul", x, sigmoid(f, x))


@register_function("elu")
def elu(f: Function, x: Reg, alpha: float) -> Reg:
    """Within 4e-7 of ``alpha`` below 0; exact above."""
    zero = const(0, x.type)
    below = f.op("fmul", f.op("fsub", exp(f, fast_min(f, x, zero)), const(1, x.type)), const(alpha, x.type))
    return f.select(f.compare("olt", x, zero), below, x)


@register_function("gelu")
def gelu(f: Function, x: Reg) -> Reg:
    """Within 3e-7 of the larger of 1 and the argument; exact beyond 6."""
    if lane_count(x.type) != 16 or is_aarch64():
        return f.op("fmul", x, _erf_rational(f, x, math.sqrt(0.5), 0.5, (0, 1)))
    size = FUNCTIONS["abs"](f, x)
    place = fast_min(f, f.op("fmul", size, const(16 / _GAUSSIAN_END, x.type)), const(15.5, x.type))
    index, rest = split_integer_fraction(f, place)
    chosen = [permute_float32(f, table, index) for table in _constant_vectors(_gaussian_table())]
    share = chosen[0]
    for c in chosen[1:]:
        share = fma(f, share, rest, c)
    return fma(f, size, share, f.op("fmul", x, const(0.5, x.type)))


_GAUSSIAN_END = 5.6  # in units of the deviation: beyond, half of the bell's area lies on each side


@cache
def _gaussian_table() -> Array:
    """erf(x / sqrt(2)) / 2 in 16 pieces, each of 4th degree: [powers, the highest first, pieces]. Within 1e-7.

    The last piece is what all that follows is: a half.
    """
    nodes = (1 - np.cos((2 * np.arange(5) + 1) / 10 * np.pi)) / 2
    areas = [[math.erf((k + at) * _GAUSSIAN_END / 16 / math.sqrt(2)) / 2 for at in nodes] for k in range(16)]
    areas[-1] = [0.5] * 5
    return np.asarray(np.linalg.solve(np.vander(nodes), np.transpose(areas))).round(12)


def _constant_vectors(rows: Array) -> list[Reg]:
    """Constant vectors."""
    return [Reg("<" + ", ".join(f"float {const(x, 'float')}" for x in row) + ">", vec(len(row), "float"))
            for row in rows]  # fmt: skip


@register_function("gelu_tanh")
def gelu_tanh(f: Function, x: Reg) -> Reg:
    """Within 5e-7 of the larger of 1 and the argument."""
    cubed = f.op("fmul", f.op("fmul", x, x), x)
    inside = f.op("fmul", fma(f, cubed, const(0.044715, x.type), x), const(math.sqrt(2 / math.pi), x.type))
    half = f.op("fmul", x, const(0.5, x.type))
    return fma(f, half, tanh(f, inside), half)


# erf(z)/z as a quotient of polynomials in z squared, for |z| <= 3.95, where it reaches 1: of least largest error, 2e-8
_ERF_NUMERATOR = [2.011721819e-06, 0.0002876014263, 0.003917381595, 0.0532072569, 0.1940372559, 1.128379006]
_ERF_DENOMINATOR = [3.78395385e-05, 0.001198215103, 0.015270831, 0.1155913905, 0.5052925283, 1.0]
_ERF_END = 3.95


def _erf_rational(f: Function, x: Reg, scale: float, middle: float, limits: tuple[float, float]) -> Reg:
    """erf(x * scale), as large as it fits between ``limits`` around ``middle``: what is beyond them is rounding."""
    kind, half = x.type, (limits[1] - limits[0]) / 2
    bounded = clamp(f, x, -_ERF_END / scale, _ERF_END / scale)
    squared = f.op("fmul", bounded, bounded)
    powers = [scale ** (2 * n) for n in range(len(_ERF_DENOMINATOR) - 1, -1, -1)]
    above = [c * p * scale * half for c, p in zip(_ERF_NUMERATOR, powers, strict=True)]
    below = [c * p for c, p in zip(_ERF_DENOMINATOR, powers, strict=True)]
    share = f.op("fdiv", polynomial(f, squared, above), polynomial(f, squared, below))
    return clamp(f, fma(f, bounded, share, const(middle, kind)), *limits)


@register_function("erf")
def erf(f: Function, x: Reg) -> Reg:
    """Within 3e-7."""
    return _erf_rational(f, x, 1, -0.0, (-1, 1))


@register_function("log")
def log(f: Function, x: Reg) -> Reg:
    """Within 2. Negative arguments give NaN, 0 gives minus infinity."""
    kind, whole = x.type, vec(lane_count(x.type), "i32")
    small = f.compare("olt", x, const(1.17549435e-38, kind))
    scaled = f.select(small, f.op("fmul", x, const(2.0**25, kind)), x)
    bits = f.bitcast(scaled, whole)
    offset = f.op("sub", bits, 0x3F3504F3)  # sqrt(1/2): the mantissa will lie between it and sqrt(2)
    power = f.op("ashr", offset, 23)
    mantissa = f.bitcast(f.op("sub", bits, f.op("shl", power, 23)), kind)
    exponent = f.op("fsub", to_float32(f, power), f.select(small, const(25, kind), const(0, kind)))
    result = _log_near_one(f, f.op("fsub", mantissa, const(1, kind)), exponent)
    result = f.select(f.compare("oeq", x, const(math.inf, kind)), x, result)
    result = f.select(f.compare("oeq", x, const(0, kind)), const(-math.inf, kind), result)
    return f.select(f.compare("oge", x, const(0, kind)), result, const(math.nan, kind))


# log(1+r) = r - r*r/2 + r*r*r * p(r) for r from sqrt(1/2)-1 to sqrt(2)-1: a fit at Chebyshev points, 3e-8
_LOG = [0.07149753858, -0.115712007, 0.1166151107, -0.1241105069, 0.1424993653, -0.1666848024, 0.2000070748,
        -0.2499998905, 0.3333333119]  # fmt: skip


def _log_near_one(f: Function, r: Reg, exponent: Reg) -> Reg:
    kind = r.type
    squared = f.op("fmul", r, r)
    tail = f.op("fmul", f.op("fmul", squared, r), polynomial(f, r, _LOG))
    tail = fma(f, exponent, const(_LN2_LOW, kind), tail)
    tail = fma(f, squared, const(-0.5, kind), tail)
    return fma(f, exponent, const(_LN2_HIGH, kind), f.op("fadd", r, tail))


@register_function("round_to_half")
def round_to_half(f: Function, x: Reg) -> Reg:
    """Exact: as if stored in 16 bits, and read again."""
    return f.cast("fpext", f.cast("fptrunc", x, vec(lane_count(x.type), "half")), x.type)


def bf16_bits(f: Function, x: Reg) -> Reg:
    """The upper 16 bits, rounded to even; what is no number stays so."""
    whole = vec(lane_count(x.type), "i32")
    bits = f.bitcast(x, whole)
    odd = f.op("and", f.op("lshr", bits, 16), 1)
    rounded = f.op("lshr", f.add(f.op("add", bits, odd), 0x7FFF), 16)
    return f.select(f.compare("uno", x, x), f.op("or", f.op("lshr", bits, 16), 64), rounded)


@register_function("round_to_bfloat")
def round_to_bfloat(f: Function, x: Reg) -> Reg:
    """Exact."""
    return f.bitcast(f.op("shl", bf16_bits(f, x), 16), x.type)


from edgewright.engine.codegen import math_float64 as math_float64  # noqa: E402  (it adds functions)
from edgewright.engine.codegen import trigonometry as trigonometry  # noqa: E402  (so does it)
