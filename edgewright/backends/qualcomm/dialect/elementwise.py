"""References of elementwise functions. ``neuron``, ``unary`` and ``binary`` take an operation code.

Sums and products of integers are rounded once, half up: 8-bit sums use the fixed point of ``numerics.py``, as the
residual add of a convolution does, 16-bit sums that of ``int16.py``; everything else is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import from_float, subtract_zero_point, to_float
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.aten.reference import activations
from edgewright.ir.aten.reference.special import erf
from edgewright.ir.graph import Array, Op, QParams, Value
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
    return np.asarray(np.sign(np.where(np.isnan(x), x.dtype.type(0), x)))


def _gelu(x: Array) -> Array:
    return np.asarray(x * _F32(0.5) * (1 + erf(x / _F32(np.sqrt(2)))))


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(a / b) if a.dtype.kind == "f" else np.asarray(np.trunc(a / b))


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


relu = _fn(lambda x: np.maximum(x, 0))
gelu, tanh = _fn(_gelu), _fn(np.tanh)
sigmoid = _fn(lambda x: 1 / (1 + np.exp(-x)))
hard_swish = _fn(activations.hardswish)
prelu = _fn(lambda x, slope: np.where(x < 0, x * slope, x))
select = _fn(np.where)
is_nan, is_inf = _fn(np.isnan), _fn(np.isinf)
_NEURONS: dict[str, Reference] = {
    "elu": elu, "gelu": gelu, "hard_sigmoid": hard_sigmoid, "hard_swish": hard_swish, "relu": relu,
    "relu_min_max": relu_min_max, "sigmoid": sigmoid, "softplus": softplus, "tanh": tanh,
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


_SIGNS = {"Add": 1, "Subtract": -1}
ADD_SUB_MUL = (*_SIGNS, "Multiply")


def _fixed_point_params(op: Op) -> tuple[QParams, QParams, QParams] | None:
    """Quantization parameters of a sum or difference of 8-bit tensors whose factors fit in 32 bits."""
    (a, b), out = op.args["inputs"], op.outputs[0]
    if out is None or a.q is None or b.q is None or out.q is None or op.kind.endswith("Multiply"):
        return None
    if not all_8bit(a, b, out) or any(q.axis is not None for q in (a.q, b.q, out.q)):
        return None
    return (a.q, b.q, out.q) if 1 <= QNN.sum_factors((a.q, b.q), out.q)[2] <= 30 else None


def is_fixed_point(op: Op) -> bool:
    return _fixed_point_params(op) is not None


def add_sub_mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    name, fixed_params = op.kind.partition("ElementWise")[2], _fixed_point_params(op)
    if fixed_params is not None:
        x, y = (subtract_zero_point(array, q, np.int64) for q, array in zip(fixed_params, arrays, strict=False))
        return QNN.sum(x, _SIGNS[name] * y, fixed_params[:2], fixed_params[2], None)
    result = BINARY[name]({}, to_float(a, arrays[0]), to_float(b, arrays[1]))
    return from_float(out, result) if out.q is None else quantize_half_up(result, out.q)


def quantize_half_up(numbers: Array, q: QParams) -> Array:
    """Quantize, rounding half up and saturating."""
    with np.errstate(all="ignore"):
        steps = np.floor(numbers.astype(_F32) * (_F32(1) / as_float32(q.scale)) + _F32(0.5)) + as_float32(q.zero_point)
    return np.clip(np.nan_to_num(steps), q.qmin, q.qmax).astype(q.dtype)


def inverse_scale(value: Value) -> np.float32:
    """The reciprocal of the scale."""
    assert value.q is not None
    return _F32(_F32(1) / as_float32(value.q.scale))
