"""Vector arithmetic of any dtype with numpy semantics: integers wrap around, bool is a byte of 0 or 1.

The operands of an operator have one dtype, which is also the result's, except that comparisons return bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.math_float64 import atan, call_intrinsic, exp, log, select_where, to_float32, to_float64
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.ir.dtypes import DType

TypedOp = Callable[[Function, DType, list[Reg]], Reg]
TYPED_OPS: dict[str, TypedOp] = {}
ORDERINGS = ("lt", "le", "gt", "ge")
BOOL_OPS = ("eq", "ne", *ORDERINGS, *(f"logical_{name}" for name in ("and", "or", "xor", "not")), "isnan", "isinf")


def register_typed(*kinds: str) -> Callable[[TypedOp], TypedOp]:
    def register(emit: TypedOp) -> TypedOp:
        TYPED_OPS.update(dict.fromkeys(kinds, emit))
        return emit

    return register


def is_float(dtype: DType) -> bool:
    return dtype.kind == "f"


def is_nonzero(f: Function, x: Reg) -> Reg:
    """An i1 vector: where x is not zero."""
    predicate = "une" if element_type(x.type) == "float" else "ne"
    return f.compare(predicate, x, const(0, x.type))


def i1_to_bool(f: Function, bits: Reg) -> Reg:
    return f.cast("zext", bits, vec(lane_count(bits.type), "i8"))


# ------------------------------------------------------------------------------------------------------- one operand


@register_typed("neg")
def _neg(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return f.op("sub", const(0, args[0].type), args[0])


@register_typed("abs")
def _abs(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    (x,) = args
    if dtype.kind != "i":
        return x
    return f.select(f.compare("slt", x, 0), f.op("sub", const(0, x.type), x), x)


@register_typed("sign")
def _sign(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    (x,) = args
    if dtype.kind == "b":
        return x
    below = f.compare("slt" if dtype.kind == "i" else "ult", x, 0)
    above = i1_to_bool(f, f.compare("ne", x, 0))
    result = f.select(below, const(-1, above.type), above)
    return f.cast("sext", result, x.type) if element_type(x.type) != "i8" else result


@register_typed("square")
def _square(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return f.op("mul", args[0], args[0])


@register_typed("ceil", "floor", "trunc", "round", "clone")
def _identity(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return args[0]


@register_typed("bitwise_not")
def _not(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return f.op("xor", args[0], 1 if dtype.kind == "b" else -1)


@register_typed("logical_not")
def _logical_not(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return i1_to_bool(f, f.compare("oeq" if is_float(dtype) else "eq", args[0], const(0, args[0].type)))


def _float_class_test(kind: str) -> TypedOp:
    def emit(f: Function, dtype: DType, args: list[Reg]) -> Reg:
        (x,) = args
        if not is_float(dtype):
            return const(0, vec(lane_count(x.type), "i8"))
        if kind == "isnan":
            return i1_to_bool(f, f.compare("uno", x, x))
        return i1_to_bool(f, f.compare("oeq", call_intrinsic(f, "fabs", x), const(math.inf, x.type)))

    return emit


TYPED_OPS.update({kind: _float_class_test(kind) for kind in ("isnan", "isinf")})


def cast(f: Function, x: Reg, source: DType, target: DType) -> Reg:
    """C's conversion: values out of range are truncated to the low bits."""
    lanes = lane_count(x.type)
    if target.kind == "b":
        return x if source.kind == "b" else i1_to_bool(f, is_nonzero(f, x))
    if is_float(target):
        signed = source.kind == "i"
        return x if is_float(source) else f.cast("sitofp" if signed else "uitofp", x, vec(lanes, "float"))
    kind = vec(lanes, f"i{8 * target.itemsize}")
    if is_float(source):
        integers = f.cast("fptosi", x, vec(lanes, "i64" if target.itemsize == 8 else "i32"))
        return f.cast("trunc", integers, kind)
    if target.itemsize < source.itemsize:
        return f.cast("trunc", x, kind)
    return f.cast("sext" if source.kind == "i" else "zext", x, kind)


# ------------------------------------------------------------------------------------------------------ two operands

_WRAPPING = {
    "add": "add", "sub": "sub", "mul": "mul", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
}  # fmt: skip


def _wrapping(name: str) -> TypedOp:
    def emit(f: Function, dtype: DType, args: list[Reg]) -> Reg:
        instruction = {"add": "or", "mul": "and"}.get(name, name) if dtype.kind == "b" else name
        return f.op(instruction, args[0], args[1])

    return emit


TYPED_OPS.update({kind: _wrapping(name) for kind, name in _WRAPPING.items()})


def emit_comparison(f: Function, kind: str, dtype: DType, a: Reg, b: Reg) -> Reg:
    if is_float(dtype):
        return f.compare({"eq": "oeq", "ne": "une"}.get(kind) or f"o{kind}", a, b)
    if kind in ("eq", "ne"):
        return f.compare(kind, a, b)
    return f.compare(("s" if dtype.kind == "i" else "u") + kind, a, b)


def _comparison(kind: str) -> TypedOp:
    return lambda f, dtype, args: i1_to_bool(f, emit_comparison(f, kind, dtype, args[0], args[1]))


TYPED_OPS.update({kind: _comparison(kind) for kind in ("eq", "ne", *ORDERINGS)})


def _logical(name: str) -> TypedOp:
    return lambda f, dtype, args: i1_to_bool(f, f.op(name, is_nonzero(f, args[0]), is_nonzero(f, args[1])))


TYPED_OPS.update({f"logical_{name}": _logical(name) for name in ("and", "or", "xor")})


@register_typed("maximum")
def _maximum(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return int_max(f, args[0], args[1], dtype.kind == "i")


@register_typed("minimum")
def _minimum(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return int_min(f, args[0], args[1], dtype.kind == "i")


@register_typed("where")
def _where(f: Function, dtype: DType, args: list[Reg]) -> Reg:
    return f.select(is_nonzero(f, args[0]), args[1], args[2])


def _shift(left: bool) -> TypedOp:
    def emit(f: Function, dtype: DType, args: list[Reg]) -> Reg:
        x, by = args
        bits = 8 * dtype.itemsize
        usable = f.compare("ult", by, bits)
        safe = f.select(usable, by, const(0, by.type))
        if left:
            return f.select(usable, f.op("shl", x, safe), const(0, x.type))
        signed = dtype.kind == "i"
        rest = f.op("ashr", x, bits - 1) if signed else const(0, x.type)
        return f.select(usable, f.op("ashr" if signed else "lshr", x, safe), rest)

    return emit


TYPED_OPS.update({"bitwise_left_shift": _shift(True), "bitwise_right_shift": _shift(False)})


def has_vector_arithmetic(dtype: DType) -> bool:
    """Whether this module has vector arithmetic for a dtype."""
    return dtype == np.dtype(np.float32) or dtype.kind in "biu"


# ------------------------------------------------------------------------ division, remainder, power and atan2


def _int_div_rem(f: Function, dtype: DType, args: list[Reg]) -> tuple[Reg, Reg, Reg]:
    """Truncated quotient, remainder and divisor. Divisors 0 and INT_MIN / -1, which trap on x86, are replaced."""
    a, b = args
    one, signed = const(1, b.type), dtype.kind == "i"
    b = f.select(f.compare("eq", b, 0), one, b)
    if signed:
        is_int_min = f.compare("eq", a, -(1 << 8 * dtype.itemsize - 1))
        overflows = f.op("and", is_int_min, f.compare("eq", b, -1))
        safe = f.select(overflows, one, b)
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
    signs_differ = f.compare("olt", f.op("fmul", remainder, call_intrinsic(f, "copysign", const(1, b.type), b)), zero)
    quotient = f.op("fdiv", f.op("fsub", a, remainder), b)
    quotient = f.select(signs_differ, f.op("fsub", quotient, const(1, a.type)), quotient)
    result = call_intrinsic(f, "floor", quotient)
    rounds_up = f.compare("ogt", f.op("fsub", quotient, result), const(0.5, a.type))
    result = f.select(rounds_up, f.op("fadd", result, const(1, a.type)), result)
    signed_zero = call_intrinsic(f, "copysign", zero, f.op("fdiv", a, b))
    result = f.select(f.compare("oeq", quotient, zero), signed_zero, result)
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
    integers = f.compare("oeq", call_intrinsic(f, "trunc", y), y)
    half = f.op("fmul", y, const(0.5, kind))
    odd = f.op("and", integers, f.compare("une", call_intrinsic(f, "trunc", half), half))
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
    kind, abs_y, abs_x = x.type, call_intrinsic(f, "fabs", y), call_intrinsic(f, "fabs", x)
    both_infinite = f.op("and", *(f.compare("oeq", v, const(math.inf, kind)) for v in (abs_y, abs_x)))
    both_zero = f.op("and", *(f.compare("oeq", v, const(0, kind)) for v in (abs_y, abs_x)))
    ratio = f.select(both_infinite, const(1, kind), f.select(both_zero, const(0, kind), f.op("fdiv", abs_y, abs_x)))
    angle = atan(f, ratio)
    reflected = f.op("fsub", const(math.pi, kind), angle)
    result = select_where(f, "olt", call_intrinsic(f, "copysign", const(1, kind), x), 0, reflected, angle)
    return to_float32(f, call_intrinsic(f, "copysign", result, y))
