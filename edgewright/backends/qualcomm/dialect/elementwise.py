"""Elementwise functions in numpy, of quantized numbers and of operands of several types: those of floating point are
translated, arithmetic on integers has rules (``int_rules.py``). ``neuron``, ``unary`` and ``binary`` take an operation
code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.aten.reference import activations
from edgewright.ir.aten.reference.special import erf
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.requant_scale import all_8bit

Params = Mapping[str, Any]
Reference = Callable[..., Array]
_F32 = np.float32


def _fn(function: Any) -> Reference:
    def reference(params: Params, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays))

    return reference


def _sign(x: Array) -> Array:
    """0 for NaN, as in torch; numpy returns NaN."""
    if x.dtype.kind == "b":
        return x
    return np.asarray(np.sign(np.where(np.isnan(x), x.dtype.type(0), x)))


def _gelu(x: Array) -> Array:
    return np.asarray(x * _F32(0.5) * (1 + erf(x / _F32(np.sqrt(2)))))


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(a / b) if a.dtype.kind == "f" else np.asarray(np.trunc(a / b))


# QNN's names of the op table's functions.
FUNCTIONS = {
    "abs": "ElementWiseAbs", "asin": "ElementWiseAsin", "atan": "ElementWiseAtan", "ceil": "ElementWiseCeil",
    "cos": "ElementWiseCos", "exp": "ElementWiseExp", "floor": "ElementWiseFloor", "log": "ElementWiseLog",
    "neg": "ElementWiseNeg", "round": "ElementWiseRound", "rsqrt": "ElementWiseRsqrt", "sign": "ElementWiseSign",
    "sin": "ElementWiseSin", "sqrt": "ElementWiseSquareRoot", "gelu": "Gelu", "hardswish": "HardSwish",
    "sigmoid": "Sigmoid", "tanh": "Tanh",
}  # fmt: skip
UNARY: dict[str, Reference] = {
    "Abs": _fn(np.abs), "Asin": _fn(np.arcsin), "Atan": _fn(np.arctan), "Ceil": _fn(np.ceil),
    "Cos": _fn(np.cos), "Exp": _fn(np.exp), "Floor": _fn(np.floor), "Log": _fn(np.log),
    "Neg": _fn(np.negative), "Not": _fn(np.logical_not), "Round": _fn(np.rint),
    "Rsqrt": _fn(lambda x: 1 / np.sqrt(x)), "Sign": _fn(_sign), "Sin": _fn(np.sin),
    "SquareRoot": _fn(np.sqrt),
}  # fmt: skip
BINARY: dict[str, Reference] = {
    "Add": _fn(np.add), "Subtract": _fn(np.subtract), "Multiply": _fn(np.multiply), "Divide": _fn(_divide),
    "Maximum": _fn(np.maximum), "Minimum": _fn(np.minimum), "Power": _fn(np.power),
    "FloorDiv": _fn(np.floor_divide), "SquaredDifference": _fn(lambda a, b: np.square(a - b)),
    "Equal": _fn(np.equal), "NotEqual": _fn(np.not_equal), "Greater": _fn(np.greater),
    "GreaterEqual": _fn(np.greater_equal), "Less": _fn(np.less), "LessEqual": _fn(np.less_equal),
    "And": _fn(np.logical_and), "Or": _fn(np.logical_or), "Xor": _fn(np.logical_xor),
}  # fmt: skip
_UNARY_BY_CODE = dict(enumerate((
    "Abs", "Asin", "Atan", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Not", None, "Round", "Rsqrt", "Sign", "Sin",
    "SquareRoot",
)))  # fmt: skip
BINARY_BY_CODE = dict(enumerate((
    "Add", "And", "Divide", "Equal", "FloorDiv", None, "Greater", "GreaterEqual", "Less", "LessEqual", "Maximum",
    "Minimum", None, "Multiply", "NotEqual", "Or", "Power", "SquaredDifference", "Subtract", "Xor",
)))  # fmt: skip


def relu_min_max(params: Params, x: Array) -> Array:
    return np.clip(x, _F32(params["min_value"]), _F32(params["max_value"]))


def elu(params: Params, x: Array) -> Array:
    return np.asarray(np.where(x < 0, _F32(params["alpha"]) * np.expm1(np.minimum(x, 0)), x))


def hard_sigmoid(params: Params, x: Array) -> Array:
    return np.clip(x * _F32(params["alpha"]) + _F32(params["beta"]), 0, 1)


def softplus(params: Params, x: Array) -> Array:
    beta = _F32(params["beta"])
    with np.errstate(over="ignore"):
        return np.asarray(np.where(x * beta > params["threshold"], x, np.log1p(np.exp(x * beta)) / beta))


relu, relu6 = _fn(lambda x: np.maximum(x, 0)), _fn(lambda x: np.clip(x, 0, 6))
ACTIVATIONS: dict[str, Reference] = {
    "Sigmoid": _fn(lambda x: 1 / (1 + np.exp(-x))), "Tanh": _fn(np.tanh), "Gelu": _fn(_gelu),
    "HardSwish": _fn(activations.hardswish),
}  # fmt: skip
prelu = _fn(lambda x, slope: np.where(x < 0, x * slope, x))
select = _fn(np.where)
_NEURONS: dict[str, Reference] = {
    "elu": elu, "gelu": ACTIVATIONS["Gelu"], "hard_sigmoid": hard_sigmoid, "hard_swish": ACTIVATIONS["HardSwish"],
    "relu": relu, "relu_min_max": relu_min_max, "sigmoid": ACTIVATIONS["Sigmoid"], "softplus": softplus,
    "tanh": ACTIVATIONS["Tanh"],
}  # fmt: skip
NEURONS = tuple(_NEURONS)  # by operation code


def neuron(params: Params, x: Array) -> Array:
    return _NEURONS[NEURONS[params["operation"]]](params, x)


def unary(params: Params, x: Array) -> Array:
    return UNARY[str(_UNARY_BY_CODE[params["operation"]])](params, x)


def binary(params: Params, a: Array, b: Array) -> Array:
    return BINARY[str(BINARY_BY_CODE[params["operation"]])](params, a, b)


def cast(params: Params, x: Array) -> Array:
    """The caller converts to the type of the output."""
    return x


def affine(params: Params, x: Array, *constants: Array) -> Array:
    """``Batchnorm``: multiply with the first constant and add the second, rounded to float32 after each operation."""
    for index, constant in enumerate(constants):
        x = x + constant if index else x * constant
    return np.asarray(x, _F32)


def int_matmul(params: Params, a: Array, b: Array) -> Array:
    """``MatMul`` of int32; the others are translated."""
    a, b = (np.swapaxes(m, -1, -2) if params[f"transpose_in{i}"] else m for i, m in enumerate((a, b)))
    return np.matmul(a, b)


def is_fixed_point(op: Op) -> bool:
    """Whether it is a sum or difference of 8-bit tensors whose factors fit in 32 bits."""
    (a, b), out = op.args["inputs"], op.outputs[0]
    if out is None or a.q is None or b.q is None or out.q is None or op.kind.endswith("Multiply"):
        return False
    if not all_8bit(a, b, out) or any(q.axis is not None for q in (a.q, b.q, out.q)):
        return False
    return 1 <= QNN.sum_factors((a.q, b.q), out.q)[2] <= 30


def inverse_scale(value: Value) -> np.float32:
    """The reciprocal of the scale."""
    assert value.q is not None
    return _F32(_F32(1) / as_float32(value.q.scale))
