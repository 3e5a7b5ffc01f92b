"""Float32 functions whose intermediate steps need float64: rounded once at the end, within 1 ulp of float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec

Float64Function = Callable[[Function, Reg], Reg]


def call_intrinsic(f: Function, name: str, *args: Reg) -> Reg:
    """An LLVM intrinsic on float64 or float32."""
    kind = args[0].type
    suffix = "f64" if "double" in kind else "f32"
    return f.call(
        f"llvm.{name}.v{lane_count(kind)}{suffix}" if lane_count(kind) > 1 else f"llvm.{name}.{suffix}", kind, *args
    )


def to_float64(f: Function, x: Reg) -> Reg:
    return f.cast("fpext", x, vec(lane_count(x.type), "double"))


def to_float32(f: Function, x: Reg) -> Reg:
    return f.cast("fptrunc", x, vec(lane_count(x.type), "float"))


def horner(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    """Horner's scheme with fused multiply-adds; the highest power's coefficient comes first."""
    total = const(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = call_intrinsic(f, "fma", total, x, const(c, x.type))
    return total


def select_where(f: Function, predicate: str, x: Reg, bound: float, on_true: Reg, on_false: Reg) -> Reg:
    return f.select(f.compare(predicate, x, const(bound, x.type)), on_true, on_false)


# Taylor coefficients of atanh(s)/s in s**2, for s up to (sqrt(2)-1)/(sqrt(2)+1)
_ATANH = [1 / n for n in range(19, 0, -2)]
_EXP = [1 / math.factorial(n) for n in range(11, -1, -1)]
_ATAN = [(-1) ** n / (2 * n + 1) for n in range(13, -1, -1)]


def log(f: Function, x: Reg) -> Reg:
    """The natural logarithm of a normal float64: n ln 2 + 2 atanh((m-1)/(m+1)). 0 gives -inf, negatives give NaN."""
    kind, int_type = x.type, vec(lane_count(x.type), "i64")
    bits = f.bitcast(x, int_type)
    offset = f.op("sub", bits, int(np.float64(math.sqrt(0.5)).view(np.int64)))
    power = f.op("ashr", offset, 52)
    mantissa = f.bitcast(f.op("sub", bits, f.op("shl", power, 52)), kind)
    one = const(1, kind)
    s = f.op("fdiv", f.op("fsub", mantissa, one), f.op("fadd", mantissa, one))
    series = f.op("fmul", f.op("fmul", horner(f, f.op("fmul", s, s), _ATANH), s), const(2, kind))
    result = call_intrinsic(f, "fma", _int64_to_float64(f, power), const(math.log(2), kind), series)
    result = select_where(f, "oeq", x, math.inf, x, result)
    result = select_where(f, "oeq", x, 0, const(-math.inf, kind), result)
    return select_where(f, "oge", x, 0, result, const(math.nan, kind))


def _int64_to_float64(f: Function, power: Reg) -> Reg:
    """int64 that fits in int32, as float64."""
    lanes = lane_count(power.type)
    return f.cast("sitofp", f.cast("trunc", power, vec(lanes, "i32")), vec(lanes, "double"))


def exp(f: Function, x: Reg) -> Reg:
    """exp of a float64, clamped to [-400, 400]: beyond that, float32 has overflowed or underflowed."""
    kind, lanes = x.type, lane_count(x.type)
    bounded = select_where(f, "olt", x, -400, const(-400, kind), select_where(f, "ogt", x, 400, const(400, kind), x))
    bounded = f.select(f.compare("uno", x, x), const(0, kind), bounded)
    exponent = call_intrinsic(f, "rint", f.op("fmul", bounded, const(1 / math.log(2), kind)))
    rest = call_intrinsic(f, "fma", exponent, const(-math.log(2), kind), bounded)
    power = f.cast("sext", f.cast("fptosi", exponent, vec(lanes, "i32")), vec(lanes, "i64"))
    scale = f.bitcast(f.op("shl", f.add(power, 1023), 52), kind)
    return f.select(f.compare("uno", x, x), x, f.op("fmul", horner(f, rest, _EXP), scale))


def log1p(f: Function, x: Reg) -> Reg:
    small = f.op("fmul", horner(f, x, [1 / 3, -0.5, 1]), x)
    size = call_intrinsic(f, "fabs", x)
    return select_where(f, "olt", size, 1e-5, small, log(f, f.op("fadd", x, const(1, x.type))))


def expm1(f: Function, x: Reg) -> Reg:
    small = f.op("fmul", horner(f, x, [1 / 6, 0.5, 1]), x)
    size = call_intrinsic(f, "fabs", x)
    return select_where(f, "olt", size, 1e-4, small, f.op("fsub", exp(f, x), const(1, x.type)))


def atan(f: Function, x: Reg) -> Reg:
    """atan of a float64, reduced to |z| <= sqrt(2) - 1 around 0, pi/4 and pi/2."""
    kind, one = x.type, const(1, x.type)
    size = call_intrinsic(f, "fabs", x)
    large, middle = (f.compare("ogt", size, const(bound, kind)) for bound in (1 + math.sqrt(2), math.sqrt(2) - 1))
    shifted = f.op("fdiv", f.op("fsub", size, one), f.op("fadd", size, one))
    inverse = f.op("fdiv", const(-1, kind), size)
    z = f.select(large, inverse, f.select(middle, shifted, size))
    start = f.select(large, const(math.pi / 2, kind), f.select(middle, const(math.pi / 4, kind), const(0, kind)))
    result = call_intrinsic(f, "fma", horner(f, f.op("fmul", z, z), _ATAN), z, start)
    return call_intrinsic(f, "copysign", result, x)


def _sqrt_one_minus_square(f: Function, x: Reg) -> Reg:
    """sqrt((1 - x) * (1 + x))."""
    one = const(1, x.type)
    return call_intrinsic(f, "sqrt", f.op("fmul", f.op("fsub", one, x), f.op("fadd", one, x)))


def _acos(f: Function, x: Reg) -> Reg:
    one = const(1, x.type)
    half = atan(f, call_intrinsic(f, "sqrt", f.op("fdiv", f.op("fsub", one, x), f.op("fadd", one, x))))
    return f.op("fmul", half, const(2, x.type))


def _sinh(f: Function, x: Reg) -> Reg:
    growth = expm1(f, call_intrinsic(f, "fabs", x))
    decay = f.op("fdiv", growth, f.op("fadd", growth, const(1, x.type)))
    return call_intrinsic(f, "copysign", f.op("fmul", f.op("fadd", growth, decay), const(0.5, x.type)), x)


def _cosh(f: Function, x: Reg) -> Reg:
    growth = exp(f, call_intrinsic(f, "fabs", x))
    return f.op("fmul", f.op("fadd", growth, f.op("fdiv", const(1, x.type), growth)), const(0.5, x.type))


def _asinh(f: Function, x: Reg) -> Reg:
    one, size = const(1, x.type), call_intrinsic(f, "fabs", x)
    squared = f.op("fmul", size, size)
    more = f.op("fdiv", squared, f.op("fadd", one, call_intrinsic(f, "sqrt", f.op("fadd", one, squared))))
    result = log1p(f, f.op("fadd", size, select_where(f, "oeq", size, math.inf, size, more)))
    return call_intrinsic(f, "copysign", result, x)


def _acosh(f: Function, x: Reg) -> Reg:
    one = const(1, x.type)
    less = f.op("fsub", x, one)
    return log1p(f, f.op("fadd", less, call_intrinsic(f, "sqrt", f.op("fmul", less, f.op("fadd", x, one)))))


def _atanh(f: Function, x: Reg) -> Reg:
    twice = f.op("fdiv", f.op("fadd", x, x), f.op("fsub", const(1, x.type), x))
    return f.op("fmul", log1p(f, twice), const(0.5, x.type))


def _times_constant(emit: Float64Function, factor: float) -> Float64Function:
    return lambda f, x: f.op("fmul", emit(f, x), const(factor, x.type))


FLOAT64_FUNCTIONS: dict[str, Float64Function] = {
    "log2": _times_constant(log, 1 / math.log(2)),
    "log10": _times_constant(log, 1 / math.log(10)),
    "log1p": log1p,
    "expm1": expm1,
    "atan": atan,
    "asin": lambda f, x: atan(f, f.op("fdiv", x, _sqrt_one_minus_square(f, x))),
    "acos": _acos,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
}


def _in_float64(emit: Float64Function) -> Float64Function:
    return lambda f, x: to_float32(f, emit(f, to_float64(f, x)))


# The functions above on float32 arguments, with float32 results.
ROUNDED_FROM_FLOAT64 = {name: _in_float64(emit) for name, emit in FLOAT64_FUNCTIONS.items()}
