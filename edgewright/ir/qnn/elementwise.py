"""References of elementwise functions. ``neuron``, ``unary`` and ``binary`` are QNN's numbered operator families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgewright.ir.aten.reference import activations
from edgewright.ir.aten.reference.special import erf
from edgewright.ir.graph import Array

Params = Mapping[str, Any]
Meaning = Callable[..., Array]
_F32 = np.float32


def _quiet(function: Any) -> Meaning:
    def meaning(params: Params, *arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays))

    return meaning


def _sign(x: Array) -> Array:
    """0 of NaN, as torch has it; numpy keeps NaN."""
    return np.asarray(np.sign(np.where(np.isnan(x), x.dtype.type(0), x)))


def _gelu(x: Array) -> Array:
    return np.asarray(x * _F32(0.5) * (1 + erf(x / _F32(np.sqrt(2)))))


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(a / b) if a.dtype.kind == "f" else np.asarray(np.trunc(a / b))


UNARY: dict[str, Meaning] = {
    "Abs": _quiet(np.abs), "Asin": _quiet(np.arcsin), "Atan": _quiet(np.arctan), "Ceil": _quiet(np.ceil),
    "Cos": _quiet(np.cos), "Exp": _quiet(np.exp), "Floor": _quiet(np.floor), "Log": _quiet(np.log),
    "Neg": _quiet(np.negative), "Not": _quiet(np.logical_not), "Round": _quiet(np.rint),
    "Rsqrt": _quiet(lambda x: 1 / np.sqrt(x)), "Sign": _quiet(_sign), "Sin": _quiet(np.sin),
    "SquareRoot": _quiet(np.sqrt),
}  # fmt: skip
BINARY: dict[str, Meaning] = {
    "Add": _quiet(np.add), "Subtract": _quiet(np.subtract), "Multiply": _quiet(np.multiply), "Divide": _quiet(_divide),
    "Maximum": _quiet(np.maximum), "Minimum": _quiet(np.minimum), "Power": _quiet(np.power),
    "FloorDiv": _quiet(np.floor_divide), "SquaredDifference": _quiet(lambda a, b: np.square(a - b)),
    "Equal": _quiet(np.equal), "NotEqual": _quiet(np.not_equal), "Greater": _quiet(np.greater),
    "GreaterEqual": _quiet(np.greater_equal), "Less": _quiet(np.less), "LessEqual": _quiet(np.less_equal),
    "And": _quiet(np.logical_and), "Or": _quiet(np.logical_or), "Xor": _quiet(np.logical_xor),
}  # fmt: skip
_UNARY_BY_NUMBER = dict(enumerate((
    "Abs", "Asin", "Atan", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Not", None, "Round", "Rsqrt", "Sign", "Sin",
    "SquareRoot",
)))  # fmt: skip
BY_NUMBER = dict(enumerate((
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


relu = _quiet(lambda x: np.maximum(x, 0))
gelu, tanh = _quiet(_gelu), _quiet(np.tanh)
sigmoid = _quiet(lambda x: 1 / (1 + np.exp(-x)))
hard_swish = _quiet(activations.hardswish)
prelu = _quiet(lambda x, slope: np.where(x < 0, x * slope, x))
select = _quiet(np.where)
is_nan, is_inf = _quiet(np.isnan), _quiet(np.isinf)
_NEURONS: dict[str, Meaning] = {
    "elu": elu, "gelu": gelu, "hard_sigmoid": hard_sigmoid, "hard_swish": hard_swish, "relu": relu,
    "relu_min_max": relu_min_max, "sigmoid": sigmoid, "softplus": softplus, "tanh": tanh,
}  # fmt: skip
NEURONS = tuple(_NEURONS)  # by number


def neuron(params: Params, x: Array) -> Array:
    return _NEURONS[NEURONS[params["operation"]]](params, x)


def unary(params: Params, x: Array) -> Array:
    return UNARY[str(_UNARY_BY_NUMBER[params["operation"]])](params, x)


def binary(params: Params, a: Array, b: Array) -> Array:
    return BINARY[str(BY_NUMBER[params["operation"]])](params, a, b)


def cast(params: Params, x: Array) -> Array:
    """The result's type is that of its tensor."""
    return x
