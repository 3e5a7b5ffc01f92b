"""Vector arithmetic of any dtype with numpy semantics: integers wrap around, bool is a byte of 0 or 1.

The operands of an operator have one dtype, which is also the result's, except that comparisons return bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.codegen.math_float64 import call_intrinsic
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
    how = "une" if element_type(x.type) == "float" else "ne"
    return f.compare(how, x, const(0, x.type))


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
        whole = f.cast("fptosi", x, vec(lanes, "i64" if target.itemsize == 8 else "i32"))
        return f.cast("trunc", whole, kind)
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


from edgewright.engine.codegen import div_mod as div_mod  # noqa: E402  (registers operators)
