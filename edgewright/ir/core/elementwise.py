"""Elementwise arithmetic, functions, activations and conversions; softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import activations, elementwise, norm, unary
from edgewright.ir.core.registry import DynamicRows, EvaluationContext, implements
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Array, Op, QParams
from edgewright.ir.numerics import as_float32

_BINARY: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": elementwise.maximum,
    "minimum": elementwise.minimum,
}  # fmt: skip
_UNARY: dict[str, Callable[..., Array]] = {
    "sigmoid": activations.sigmoid, "tanh": np.tanh, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": unary.abs,
    "neg": unary.neg, "floor": np.floor, "ceil": np.ceil, "sin": np.sin, "cos": np.cos, "square": np.square,
    "gelu": lambda x: activations.gelu(x, "none"), "gelu_tanh": lambda x: activations.gelu(x, "tanh"),
    "round_to_fp16": lambda x: x.astype(np.float16).astype(x.dtype),
    "round_to_bf16": lambda x: x.astype(bfloat16).astype(x.dtype), "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "hardswish": lambda x: np.clip(x * np.float32(1 / 6) + np.float32(0.5), 0, 1).astype(x.dtype) * x,
}  # fmt: skip


@implements(*_BINARY)
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


@implements("trunc_divide")
def _trunc_divide(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, elementwise.div(ex.real(op.args["self"]), ex.real(op.args["other"]), "trunc"))


@implements(*_UNARY)
def _unary(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, np.asarray(_UNARY[op.name](ex.real(op.args["self"]))))


@implements("leaky_relu")
def _leaky_relu(ex: EvaluationContext, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.store(op, np.where(x < 0, x * np.float32(op.args["negative_slope"]), x))


@implements("elu")
def _elu(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, activations.elu(ex.real(op.args["self"]), op.args["alpha"], 1.0, 1.0))


@implements("prelu")
def _prelu(ex: EvaluationContext, op: Op) -> Array:
    x = ex.real(op.args["self"])
    return ex.store(op, np.where(x < 0, x * ex.real(op.args["weight"]), x))


@implements("softmax")
def _softmax(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, norm.softmax(ex.real(op.args["self"]), -1))


@implements("clamp", "clone")
def _clamp(ex: EvaluationContext, op: Op) -> Array:
    value, out = op.args["self"], op.outputs[0]
    assert out is not None
    if value.q is not None and out.q is not None and value.q == out.q:
        lo, hi = ex.numerics.limits(out.q, op.args.get("limits"))
        return np.clip(ex.raw(value), lo, hi).astype(out.q.dtype)
    return ex.store(op, ex.real(value))


@implements("convert")
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
