"""Quotients, remainders, powers and angles of any type, as numpy has them."""

from __future__ import annotations

import math

from edgewright.engine.codegen.builder import Function, Reg, const
from edgewright.engine.codegen.math_float64 import atan, call_intrinsic, exp, log, select_where, to_float32, to_float64
from edgewright.engine.codegen.typed_arith import is_float, register_typed
from edgewright.ir.dtypes import DType


def _int_div_rem(f: Function, dtype: DType, given: list[Reg]) -> tuple[Reg, Reg, Reg]:
    """Quotient towards zero, what is left, and the divisor. No divisor makes the machine stop."""
    a, b = given
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


def _needs_floor_correction(f: Function, rest: Reg, divisor: Reg) -> Reg:
    """Where what is left has another sign than the divisor."""
    other = f.compare("slt", f.op("xor", rest, divisor), 0)
    return f.op("and", other, f.compare("ne", rest, 0))


def _float_fmod(f: Function, a: Reg, b: Reg) -> Reg:
    """What is left of a real division, exactly: each round takes 52 bits off the quotient, of at most 277."""
    x, y = to_float64(f, a), to_float64(f, b)
    size, step = call_intrinsic(f, "fabs", x), call_intrinsic(f, "fabs", y)
    minus = f.emit(step.type, f"fneg {step.type} {step}")
    rest = size
    for _ in range(6):
        times = call_intrinsic(f, "trunc", f.op("fdiv", rest, step))
        rest = call_intrinsic(f, "fma", times, minus, rest)
    rest = f.select(f.compare("olt", rest, const(0, rest.type)), f.op("fadd", rest, step), rest)
    finite = f.compare("olt", size, const(math.inf, size.type))
    endless = f.op("and", finite, f.compare("oeq", step, const(math.inf, size.type)))
    return call_intrinsic(f, "copysign", to_float32(f, f.select(endless, size, rest)), a)


@register_typed("trunc_divide")
def _trunc_divide(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    if is_float(dtype):
        return call_intrinsic(f, "trunc", f.op("fdiv", *given))
    return _int_div_rem(f, dtype, given)[0]


@register_typed("floor_divide")
def _floor_divide(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    if is_float(dtype):
        return _float_floor_divide(f, *given)
    quotient, rest, divisor = _int_div_rem(f, dtype, given)
    return (
        quotient
        if dtype.kind != "i"
        else f.add(quotient, f.cast("sext", _needs_floor_correction(f, rest, divisor), rest.type))
    )


def _float_floor_divide(f: Function, a: Reg, b: Reg) -> Reg:
    """As numpy finds it: by what is left, so that it is right where the quotient is rounded."""
    rest, zero = _float_fmod(f, a, b), const(0, a.type)
    other = f.compare("olt", f.op("fmul", rest, call_intrinsic(f, "copysign", const(1, b.type), b)), zero)
    whole = f.op("fdiv", f.op("fsub", a, rest), b)
    whole = f.select(other, f.op("fsub", whole, const(1, a.type)), whole)
    made = call_intrinsic(f, "floor", whole)
    apart = f.compare("ogt", f.op("fsub", whole, made), const(0.5, a.type))
    made = f.select(apart, f.op("fadd", made, const(1, a.type)), made)
    none = call_intrinsic(f, "copysign", zero, f.op("fdiv", a, b))
    made = f.select(f.compare("oeq", whole, zero), none, made)
    return f.select(f.compare("oeq", b, zero), f.op("fdiv", a, b), made)


@register_typed("fmod")
def _fmod(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    return _float_fmod(f, *given) if is_float(dtype) else _int_div_rem(f, dtype, given)[1]


@register_typed("remainder")
def _remainder(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    if is_float(dtype):
        rest, zero = _float_fmod(f, *given), const(0, given[0].type)
        signs = [f.compare("olt", x, zero) for x in (rest, given[1])]
        other = f.op("and", f.op("xor", *signs), f.compare("une", rest, zero))
        return f.select(other, f.op("fadd", rest, given[1]), rest)
    _, rest, divisor = _int_div_rem(f, dtype, given)
    return (
        rest
        if dtype.kind != "i"
        else f.select(_needs_floor_correction(f, rest, divisor), f.op("add", rest, divisor), rest)
    )


# ----------------------------------------------------------------------------------------------- powers and angles


@register_typed("pow")
def _pow(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    if not is_float(dtype):
        return _int_power(f, dtype, *given)
    x, y = (to_float64(f, v) for v in given)
    kind, size = x.type, call_intrinsic(f, "fabs", x)
    made = exp(f, f.op("fmul", y, log(f, size)))
    whole = f.compare("oeq", call_intrinsic(f, "trunc", y), y)
    half = f.op("fmul", y, const(0.5, kind))
    odd = f.op("and", whole, f.compare("une", call_intrinsic(f, "trunc", half), half))
    below = f.compare("olt", x, const(0, kind))
    sign = f.select(odd, call_intrinsic(f, "copysign", const(1, kind), x), const(1, kind))
    made = call_intrinsic(f, "copysign", made, sign)
    finite = f.compare("one", size, const(math.inf, kind))
    lost = f.op("and", f.op("and", below, finite), f.compare("une", call_intrinsic(f, "trunc", y), y))
    made = f.select(lost, const(math.nan, kind), made)
    endless = f.compare("oeq", call_intrinsic(f, "fabs", y), const(math.inf, kind))
    unit = f.op("and", f.compare("oeq", size, const(1, kind)), endless)
    known = f.op("or", f.compare("oeq", y, const(0, kind)), f.compare("oeq", x, const(1, kind)))
    return to_float32(f, f.select(f.op("or", known, unit), const(1, kind), made))


def _int_power(f: Function, dtype: DType, base: Reg, power: Reg) -> Reg:
    """By squaring, in the type's own bits; to a negative power only 1 and -1 leave anything."""
    one, zero, signed = const(1, base.type), const(0, base.type), dtype.kind == "i"
    below = f.compare("slt", power, 0) if signed else None
    left = power if below is None else f.select(below, zero, power)
    bits = 8 * dtype.itemsize

    def step(_: Reg, now: list[Reg]) -> list[Reg]:
        made, square, rest = now
        odd = f.compare("ne", f.op("and", rest, 1), const(0, rest.type))
        return [f.select(odd, f.op("mul", made, square), made), f.op("mul", square, square), f.op("lshr", rest, 1)]

    made = f.loop(bits, [one, base, left], step)[0]
    if below is None:
        return made
    minus = f.select(f.compare("ne", f.op("and", power, 1), zero), const(-1, base.type), one)
    unit = f.select(f.compare("eq", base, -1), minus, zero)
    unit = f.select(f.compare("eq", base, 1), one, unit)
    return f.select(below, unit, made)


@register_typed("atan2")
def _atan2(f: Function, dtype: DType, given: list[Reg]) -> Reg:
    y, x = (to_float64(f, v) for v in given)
    kind, high, far = x.type, call_intrinsic(f, "fabs", y), call_intrinsic(f, "fabs", x)
    both = f.op("and", *(f.compare("oeq", v, const(math.inf, kind)) for v in (high, far)))
    none = f.op("and", *(f.compare("oeq", v, const(0, kind)) for v in (high, far)))
    ratio = f.select(both, const(1, kind), f.select(none, const(0, kind), f.op("fdiv", high, far)))
    angle = atan(f, ratio)
    beyond = f.op("fsub", const(math.pi, kind), angle)
    made = select_where(f, "olt", call_intrinsic(f, "copysign", const(1, kind), x), 0, beyond, angle)
    return to_float32(f, call_intrinsic(f, "copysign", made, y))
