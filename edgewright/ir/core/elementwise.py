"""Elementwise arithmetic, functions, comparisons and conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import activations, elementwise, unary
from edgewright.ir.core.evaluation import DynamicRows, EvaluationContext
from edgewright.ir.core.table import (
    LIMITS,
    REAL,
    Shape,
    ShapeOf,
    broadcast,
    define,
    define_aten,
    first_operand,
    require,
)
from edgewright.ir.dtypes import bfloat16, is_floating
from edgewright.ir.graph import Array, Op, QParams
from edgewright.ir.numerics import as_float32

# ---------------------------------------------------------------------------------------------------------- arithmetic

_BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "maximum": elementwise.maximum, "minimum": elementwise.minimum,
}  # fmt: skip


def _binary(ex: EvaluationContext, op: Op) -> Array:
    a, b, out = op.args["self"], op.args["other"], op.outputs[0]
    assert out is not None
    if out.q is not None and a.q is not None and b.q is not None and op.name in ("add", "sub", "mul"):
        return _integer_binary(ex, op, a.q, b.q, out.q)
    return ex.store(op, _BINARY[op.name](ex.real(a), ex.real(b)))


def _integer_binary(ex: EvaluationContext, op: Op, a: QParams, b: QParams, out: QParams) -> Array:
    x, y = (np.asarray(ex.raw(op.args[name])).astype(np.int64) for name in ("self", "other"))
    x, y = x - a.zero_point, y - b.zero_point
    limits = op.args.get("limits")
    if op.name == "mul":
        return ex.numerics.requantize(
            x * y, as_float32(a.scale) * as_float32(b.scale) / as_float32(out.scale), out, limits
        )
    return ex.numerics.sum(x, y if op.name == "add" else -y, (a, b), out, limits)


_DIVISIONS: dict[str, Callable[..., Array]] = {
    "trunc_divide": partial(elementwise.div, rounding_mode="trunc"), "floor_divide": elementwise.floor_divide,
    "fmod": elementwise.fmod, "remainder": elementwise.remainder,
}  # fmt: skip


def _divide(ex: EvaluationContext, op: Op) -> Array:
    a, b = ex.real(op.args["self"]), ex.real(op.args["other"])
    b = b if is_floating(b.dtype) else np.where(b == 0, b.dtype.type(1), b)
    return ex.store(op, _DIVISIONS[op.name](a, b))


_ARITHMETIC = "float float -> float | Q Q -> Q | I I -> I"
define("add mul", "of two tensors, broadcast", "self other", f"{_ARITHMETIC} | bool bool -> bool", broadcast, _binary,
       LIMITS)  # fmt: skip
define("sub", "of two tensors, broadcast", "self other", _ARITHMETIC, broadcast, _binary, LIMITS)
define("div", "of two tensors, broadcast", "self other", "float float -> float | Q Q -> Q", broadcast, _binary, LIMITS)
define("maximum minimum", "of two tensors, broadcast; NaN if one is", "self other",
       f"{_ARITHMETIC} | bool bool -> bool", broadcast, _binary, LIMITS)  # fmt: skip
_DIVISOR = "; an integer divisor of 0 counts as 1: whoever makes the graph rules it out"
define("trunc_divide", f"quotient, rounded toward zero{_DIVISOR}", "self other", "F F -> F | I I -> I", broadcast,
       _divide)  # fmt: skip
define("floor_divide fmod remainder", f"of two tensors, broadcast{_DIVISOR}", "self other", "F F -> F | I I -> I",
       broadcast, _divide)  # fmt: skip
define_aten("atan2", "of two tensors, broadcast", "self other", "F F -> F")
define_aten("pow", "of two tensors, broadcast", "self exponent", "F F -> F | I I -> I")
define_aten("bitwise_and bitwise_or bitwise_xor", "of two tensors, broadcast", "self other",
            "I I -> I | bool bool -> bool")  # fmt: skip
define_aten("bitwise_left_shift bitwise_right_shift", "of two tensors, broadcast", "self other", "I I -> I")
define_aten("bitwise_not", "of each element", "self", "I -> I | bool -> bool")

# --------------------------------------------------------------------------------------------- comparisons and choices

define_aten("eq ne lt le gt ge", "of two tensors, broadcast", "self other", "N N -> bool")
define_aten("logical_and logical_or logical_xor", "of two tensors, broadcast", "self other", "bool bool -> bool")
define_aten("logical_not", "of each element", "self", "bool -> bool")
define_aten("isnan isinf", "of each element", "self", "number -> bool")
define_aten("where", "`self` where `condition` is true, else `other`", "condition self other", "mask N N -> N")

# ----------------------------------------------------------------------------------------------------------- functions

_UNARY: dict[str, Callable[..., Array]] = {
    "sigmoid": activations.sigmoid, "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": unary.abs,
    "neg": unary.neg, "floor": np.floor, "ceil": np.ceil, "sin": np.sin, "cos": np.cos, "square": np.square,
    "gelu": lambda x: activations.gelu(x, "none"), "gelu_tanh": lambda x: activations.gelu(x, "tanh"),
    "round_to_fp16": lambda x: x.astype(np.float16).astype(x.dtype),
    "round_to_bf16": lambda x: x.astype(bfloat16).astype(x.dtype), "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "hardswish": lambda x: np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1).astype(x.dtype) * x,
}  # fmt: skip


def _unary(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, np.asarray(_UNARY[op.name](ex.real(op.args["self"]))))


def _leaky_relu(ex: EvaluationContext, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.store(op, np.where(x < 0, x * np.float32(op.args["negative_slope"]), x))


def _elu(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, activations.elu(ex.real(op.args["self"]), op.args["alpha"], 1.0, 1.0))


def _prelu(ex: EvaluationContext, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.store(op, np.where(x < 0, x * ex.real(op.args["weight"]), x))


def _prelu_shape(op: Op, shape_of: ShapeOf) -> Shape:
    shape = tuple(shape_of(op.args["self"]))
    require(broadcast(op, shape_of) == shape, "slopes must fit the last dimension")
    return shape


_FUNCTION = "F -> F | Q -> Q"
define("sigmoid tanh exp log sqrt sin cos gelu gelu_tanh rsqrt", "of each element", "self", _FUNCTION, first_operand,
       _unary, LIMITS)  # fmt: skip
define("hardswish", "`x * clip(x / 6 + 1/2, 0, 1)`, each operation rounded", "self", _FUNCTION, first_operand, _unary,
       LIMITS)  # fmt: skip
define("abs neg square floor ceil", "of each element", "self", f"{_FUNCTION} | I -> I", first_operand, _unary, LIMITS)
define("round_to_fp16 round_to_bf16", "to the nearest 16-bit float, stored as float32", "self", "f32 -> f32",
       first_operand, _unary)  # fmt: skip
define("leaky_relu", "negative elements times `negative_slope`", "self", _FUNCTION, first_operand, _leaky_relu,
       {"negative_slope": REAL, **LIMITS})  # fmt: skip
define("elu", "`alpha * (exp(x) - 1)` of negative elements", "self", _FUNCTION, first_operand, _elu,
       {"alpha": REAL, **LIMITS})  # fmt: skip
define(
    "prelu",
    "negative elements times `weight`, broadcast",
    "self weight",
    "float float -> float",
    _prelu_shape,
    _prelu,
    LIMITS,
)
define_aten("acos acosh asin asinh atan atanh cosh erf expm1 log10 log1p log2 reciprocal silu sinh tan",
            "of each element", "self", "F -> F")  # fmt: skip
define_aten("round trunc sign", "of each element; halves round to even", "self", "F -> F | I -> I")

# --------------------------------------------------------------------------------------------------------- conversions


def _clamp(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    if value.q is not None and out.q is not None and value.q == out.q:
        lo, hi = ex.numerics.limits(out.q, op.args.get("limits"))
        return np.clip(ex.raw(value), lo, hi).astype(out.q.dtype)
    return ex.store(op, ex.real(value))


def _convert(ex: EvaluationContext, op: Op) -> Any:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    if out.q is not None and out.q.dynamic:
        stored, scale, zero = ex.numerics.quantize_rows(ex.real(value), -(out.q.axis or -1))
        return DynamicRows(stored, scale, zero, ex.real(value))
    if value.q is not None and out.q is not None:
        converted = ex.numerics.convert(np.asarray(ex.raw(value)), value.q, out.q, op.args.get("limits"))
        if converted is not None:
            return converted
    return ex.store(op, ex.real(value))


define("clamp", "to `limits`", "self", "F -> F | Q -> Q", first_operand, _clamp, LIMITS)
define("clone", "a copy", "self", "M= -> M=", first_operand, _clamp)
define("convert", "to another float type, or between real numbers and their quantization", "self",
       "float -> float | float -> quant8 | quant8 -> float | quant8 -> quant8 | float -> di8",
       first_operand, _convert, LIMITS)  # fmt: skip
define_aten("cast", "to the result's type, as C does: integers wrap, fractions are cut off", "self", "number -> number")
