"""Division, remainder, power and atan2 of any dtype, with numpy semantics."""

from __future__ import annotations

import math

from edgewright.engine.codegen.builder import Function, Reg, const
from edgewright.engine.codegen.math_float64 import atan, call_intrinsic, exp, log, select_where, to_float32, to_float64
from edgewright.engine.codegen.typed_arith import is_float, register_typed
from edgewright.ir.dtypes import DType


def _int_div_rem(f: Function, dtype: DType, args: list[Reg]) -> tuple[Reg, Reg, Reg]:
    """Truncated quotient, remainder and divisor. Divisors 0 and INT_MIN / -1, which trap on x86, are replaced."""
    a, b = args
    one, signed = const(1, b.type), dtype.kind == "i"
    b = f.select(f.compare("eq", b, 0), one, b)
    if signed:
        least = f.compare("eq", a, -(1 << 8 * dtype.itemsize - 1))
        beyond = f.op("and", least, f.compare("eq", b, -1))
        safe = f.select(beyond, one, b)
    else:
        safe = b
    quotient = f.op("sdiv" if signed else "udiv", a, safe)
    return quotient, f.op("sub", a, f.op("mul", quotient, safe)), b


def _needs_floor_correction(f: Function, remainder: Reg, divisor: Reg) -> Reg:
    """Where the remainder is not 0 and its sign differs from the divisor's."""
    other = f.compare("slt", f.op("xor", remainder, divisor), 0)
    return f.op("and", other, f.compare("ne", remainder, 0))


def _float_fmod(f: Function, a: Reg, b: Reg) -> Reg:
    """Exact float32 fmod in float64.

    The quotient of two float32 has at most 277 bits, and each round removes 52 of them: the truncated float64 quotient
    times the divisor is subtracted with an FMA, which is exact. A rounded-up last quotient is corrected at the end.
    """
    x, y = to_float64(f, a), to_float64(f, b)
    dividend, divisor = call_intrinsic(f, "fabs", x), call_intrinsic(f, "fabs", y)
    minus = f.emit(divisor.type, f"fneg {divisor.type} {divisor}")
    remainder = dividend
    for _ in range(6):
        times = call_intrinsic(f, "trunc", f.op("fdiv", remainder, divisor))
        remainder = call_intrinsic(f, "fma", times, minus, remainder)
    remainder = f.select(
        f.compare("olt", remainder, const(0, remainder.type)), f.op("fadd", remainder, divisor), remainder
    )
    finite = f.compare("olt", dividend, const(math.inf, dividend.type))
    infinite = f.op("and", finite, f.compare("oeq", divisor, const(math.inf, dividend.type)))
    return call_intrinsic(f, "copysign", to_float32(f, f.select(infinite, dividend, remainder)), a)


@register_typed("trunc_divide")
def _trunc_divide(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    if is_float(dtype):
        return call_intrinsic(f, "trunc", f.op("fdiv", *args))
    return _int_div_rem(f, dtype, args)[0]


@register_typed("floor_divide")
def _floor_divide(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    if is_float(dtype):
        return _float_floor_divide(f, *args)
    quotient, remainder, divisor = _int_div_rem(f, dtype, args)
    return (
        quotient
        if dtype.kind != "i"
        else f.add(quotient, f.cast("sext", _needs_floor_correction(f, remainder, divisor), remainder.type))
    )


def _float_floor_divide(f: Function, a: Reg, b: Reg) -> Reg:
    """numpy's algorithm: from the exact remainder, so that it is right where the quotient itself rounds up."""
    remainder, zero = _float_fmod(f, a, b), const(0, a.type)
    other = f.compare("olt", f.op("fmul", remainder, call_intrinsic(f, "copysign", const(1, b.type), b)), zero)
    whole = f.op("fdiv", f.op("fsub", a, remainder), b)
    whole = f.select(other, f.op("fsub", whole, const(1, a.type)), whole)
    result = call_intrinsic(f, "floor", whole)
    apart = f.compare("ogt", f.op("fsub", whole, result), const(0.5, a.type))
    result = f.select(apart, f.op("fadd", result, const(1, a.type)), result)
    none = call_intrinsic(f, "copysign", zero, f.op("fdiv", a, b))
    result = f.select(f.compare("oeq", whole, zero), none, result)
    return f.select(f.compare("oeq", b, zero), f.op("fdiv", a, b), result)


@register_typed("fmod")
def _fmod(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return _float_fmod(f, *args) if is_float(dtype) else _int_div_rem(f, dtype, args)[1]


@register_typed("remainder")
def _remainder(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    if is_float(dtype):
        remainder, zero = _float_fmod(f, *args), const(0, args[0].type)
        signs = [f.compare("olt", x, zero) for x in (remainder, args[1])]
        other = f.op("and", f.op("xor", *signs), f.compare("une", remainder, zero))
        return f.select(other, f.op("fadd", remainder, args[1]), remainder)
    _, remainder, divisor = _int_div_rem(f, dtype, args)
    return (
        remainder
        if dtype.kind != "i"
        else f.select(_needs_floor_correction(f, remainder, divisor), f.op("add", remainder, divisor), remainder)
    )


# -------------------------------------------------------------------------------------------------- power and atan2


@register_typed("pow")
def _pow(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    if not is_float(dtype):
        return _int_power(f, dtype, *args)
    x, y = (to_float64(f, v) for v in args)
    kind, size = x.type, call_intrinsic(f, "fabs", x)
    result = exp(f, f.op("fmul", y, log(f, size)))
    whole = f.compare("oeq", call_intrinsic(f, "trunc", y), y)
    half = f.op("fmul", y, const(0.5, kind))
    odd = f.op("and", whole, f.compare("une", call_intrinsic(f, "trunc", half), half))
    below = f.compare("olt", x, const(0, kind))
    sign = f.select(odd, call_intrinsic(f, "copysign", const(1, kind), x), const(1, kind))
    result = call_intrinsic(f, "copysign", result, sign)
    finite = f.compare("one", size, const(math.inf, kind))
    lost = f.op("and", f.op("and", below, finite), f.compare("une", call_intrinsic(f, "trunc", y), y))
    result = f.select(lost, const(math.nan, kind), result)
    infinite = f.compare("oeq", call_intrinsic(f, "fabs", y), const(math.inf, kind))
    unit = f.op("and", f.compare("oeq", size, const(1, kind)), infinite)
    known = f.op("or", f.compare("oeq", y, const(0, kind)), f.compare("oeq", x, const(1, kind)))
    return to_float32(f, f.select(f.op("or", known, unit), const(1, kind), result))


def _int_power(f: Function, dtype: DType, base: Reg, power: Reg) -> Reg:
    """Exponentiation by squaring, modulo the type's width; negative powers are 0 except of 1 and -1."""
    one, zero, signed = const(1, base.type), const(0, base.type), dtype.kind == "i"
    below = f.compare("slt", power, 0) if signed else None
    exponent = power if below is None else f.select(below, zero, power)
    bits = 8 * dtype.itemsize

    def step(_: Reg, now: list[Reg]) -> list[Reg]:
        result, square, remainder = now
        odd = f.compare("ne", f.op("and", remainder, 1), const(0, remainder.type))
        return [
            f.select(odd, f.op("mul", result, square), result),
            f.op("mul", square, square),
            f.op("lshr", remainder, 1),
        ]

    result = f.loop(bits, [one, base, exponent], step)[0]
    if below is None:
        return result
    minus = f.select(f.compare("ne", f.op("and", power, 1), zero), const(-1, base.type), one)
    unit = f.select(f.compare("eq", base, -1), minus, zero)
    unit = f.select(f.compare("eq", base, 1), one, unit)
    return f.select(below, unit, result)


@register_typed("atan2")
def _atan2(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    y, x = (to_float64(f, v) for v in args)
    kind, high, far = x.type, call_intrinsic(f, "fabs", y), call_intrinsic(f, "fabs", x)
    both = f.op("and", *(f.compare("oeq", v, const(math.inf, kind)) for v in (high, far)))
    none = f.op("and", *(f.compare("oeq", v, const(0, kind)) for v in (high, far)))
    ratio = f.select(both, const(1, kind), f.select(none, const(0, kind), f.op("fdiv", high, far)))
    angle = atan(f, ratio)
    beyond = f.op("fsub", const(math.pi, kind), angle)
    result = select_where(f, "olt", call_intrinsic(f, "copysign", const(1, kind), x), 0, beyond, angle)
    return to_float32(f, call_intrinsic(f, "copysign", result, y))
