"""References of elementwise operators, reductions and normalization: on dequantized values, except where
``numerics.py`` defines integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.numerics import (
    ENN_NUMERICS,
    Values,
    all_quantized,
    inputs_of,
    is_qint8,
    result_of,
    subtract_zero_point,
)
from edgewright.ir import int_rows
from edgewright.ir.aten.reference import activations, elementwise, norm, norm_variants, reduce
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.requant_scale import mean_scale, product_scale

Reference = Callable[[Values, Op], None]
Function = Callable[..., Any]


def on_dequantized(function: Function) -> Reference:
    """A function applied to the dequantized operands."""

    def reference(values: Values, op: Op) -> None:
        with np.errstate(all="ignore"):
            result = function(*(values.dequantized(v) for v in inputs_of(op)))
        values.set_float(result_of(op), np.asarray(result))

    return reference


def uses_fixed_point_sum(a: Value, b: Value, out: Value) -> bool:
    """True if 8-bit operands are added with 21-bit fixed-point factors: the scale ratios are in their range."""
    if not (is_qint8(a) and is_qint8(b) and is_qint8(out)):
        return False
    assert a.q is not None and b.q is not None and out.q is not None
    return 1 <= ENN_NUMERICS.sum_factors((a.q, b.q), out.q)[2] <= 30


def add_or_subtract(sign: int, function: Function) -> Reference:
    float_fn = on_dequantized(function)

    def reference(values: Values, op: Op) -> None:
        (a, b), out = inputs_of(op), result_of(op)
        if not uses_fixed_point_sum(a, b, out):
            return float_fn(values, op)
        assert a.q is not None and b.q is not None and out.q is not None
        x, y = (subtract_zero_point(v, values.raw(v)).astype(np.int64) for v in (a, b))
        return values.set_raw(out, ENN_NUMERICS.sum(x, sign * y, (a.q, b.q), out.q, None))

    return reference


def multiply(values: Values, op: Op) -> None:
    (a, b), out = inputs_of(op), result_of(op)
    if not (is_qint8(a) and is_qint8(b) and is_qint8(out)):
        return on_dequantized(np.multiply)(values, op)
    x, y = (subtract_zero_point(v, values.raw(v)) for v in (a, b))
    return values.set_raw(out, np.asarray(product_scale(a, b, out, None).apply(x * y).astype(out.dtype)))


def rsqrt(x: Array) -> Array:
    return np.float32(1) / np.sqrt(x)


def clip(values: Values, op: Op) -> None:
    x = values.dequantized(inputs_of(op)[0])
    kind = x.dtype.type
    values.set_float(result_of(op), np.clip(x, kind(op.args["minimum"]), kind(op.args["maximum"])))


def prelu(values: Values, op: Op) -> None:
    """One slope for all channels, or one per channel."""
    x, slope = (values.dequantized(v) for v in inputs_of(op))
    slope = slope.reshape(()) if slope.size == 1 else slope.reshape(-1, *(1,) * (x.ndim - 2))
    values.set_float(result_of(op), np.where(x < 0, x * slope, x))


def softmax(integer_fn: Function, float_fn: Function) -> Reference:
    """With one reference for quantized and one for floating-point inputs."""

    def reference(values: Values, op: Op) -> None:
        x, axis = inputs_of(op)[0], int(op.args["axis"])
        result = integer_fn(x, values.raw(x), axis) if all_quantized(op, x) else float_fn(values.dequantized(x), axis)
        values.set_float(result_of(op), result)

    return reference


def reduction(function: Function, mean: bool) -> Reference:
    def reference(values: Values, op: Op) -> None:
        x, out, keepdims = inputs_of(op)[0], result_of(op), bool(op.args["keep_dims"])
        axes = [int(a) for a in op.args["axis"]]
        if not all_quantized(op, x):
            return values.set_float(out, function(values.dequantized(x), axes, keepdims))
        total = np.asarray(subtract_zero_point(x, values.raw(x)).sum(axis=tuple(axes), keepdims=keepdims))
        count = int(np.prod([x.bound[a] for a in axes])) if mean else 1
        return values.set_raw(out, np.asarray(mean_scale(x, out, count).apply(total).astype(out.dtype)))

    return reference


def batch_norm(values: Values, op: Op) -> None:
    x, weight, bias, mean, var = (values.dequantized(v) for v in inputs_of(op))
    result = norm.batch_norm_inference(x, weight, bias, mean, var, 0.0, float(op.args["epsilon"]))
    values.set_float(result_of(op), result[0] if isinstance(result, tuple) else result)


def _normalize_rows(values: Values, op: Op, shape: tuple[int, ...], center: bool) -> Array | None:
    """Quantized input reshaped to ``shape`` and normalized over the last dimension with exact sums; None if the input
    is floating point or too long."""
    x = inputs_of(op)[0]
    if not all_quantized(op, x) or not int_rows.norm_fits_int64(x, shape[-1]):
        return None
    rows = subtract_zero_point(x, values.raw(x)).reshape(shape)
    return int_rows.normalize_rows(x, rows, float(op.args["epsilon"]), center).reshape(x.bound)


def layer_norm(values: Values, op: Op) -> None:
    x, weight, bias = inputs_of(op)
    result = _normalize_rows(values, op, x.bound, True)
    if result is None:
        data, scale, shift = (values.dequantized(v) for v in (x, weight, bias))
        outputs = norm.layer_norm(data, [x.bound[-1]], scale, shift, float(op.args["epsilon"]))
        result = outputs[0] if isinstance(outputs, tuple) else outputs
    else:
        result = result * values.dequantized(weight) + values.dequantized(bias)
    values.set_float(result_of(op), result)


def group_norm(values: Values, op: Op) -> None:
    x, weight, bias = inputs_of(op)
    groups, epsilon = int(op.args["num_groups"]), float(op.args["epsilon"])
    result = _normalize_rows(values, op, (x.bound[0], groups, int(np.prod(x.bound[1:])) // groups), True)
    if result is None:
        result = norm_variants.group_norm(
            values.dequantized(x), groups, values.dequantized(weight), values.dequantized(bias), epsilon
        )
    else:
        scale, shift = (values.dequantized(v).reshape(-1, *(1,) * (len(x.bound) - 2)) for v in (weight, bias))
        result = result * scale + shift
    values.set_float(result_of(op), result)


def rms_norm(values: Values, op: Op) -> None:
    x, gamma = inputs_of(op)
    shape = [int(n) for n in op.args["normalize_shape"]]
    outer = x.bound[: len(x.bound) - len(shape)]
    result = _normalize_rows(values, op, (*outer, int(np.prod(shape))), False)
    if result is None:
        result = norm_variants.rms_norm(
            values.dequantized(x), shape, values.dequantized(gamma), float(op.args["epsilon"])
        )
    else:
        result = result * values.dequantized(gamma)
    values.set_float(result_of(op), result)


BINARY: dict[str, Reference] = {
    "ELTSUM": add_or_subtract(1, np.add), "SUB": add_or_subtract(-1, np.subtract), "ELTMUL": multiply,
    "ELTDIV": on_dequantized(np.divide), "MAXIMUM": on_dequantized(np.maximum), "MIN": on_dequantized(np.minimum),
    "POW": on_dequantized(elementwise.pow),
}  # fmt: skip
# ENN's names of the op table's functions, and what they compute.
FUNCTIONS = {
    "relu": "RELU", "hardswish": "HARDSWISH", "hardsigmoid": "HardSigmoid", "gelu": "GELU", "sigmoid": "SIGMOID",
    "tanh": "TANH", "log": "LOG", "sqrt": "SQRT", "rsqrt": "RSQRT", "sin": "Sin", "cos": "Cos",
}  # fmt: skip
UNARY: dict[str, Function] = {
    "RELU": activations.relu, "HARDSWISH": activations.hardswish, "HardSigmoid": activations.hardsigmoid,
    "GELU": activations.gelu, "SIGMOID": activations.sigmoid, "TANH": np.tanh, "LOG": np.log, "SQRT": np.sqrt,
    "RSQRT": rsqrt, "Sin": np.sin, "Cos": np.cos,
}  # fmt: skip
REDUCTIONS: dict[str, Reference] = {
    "REDUCEMEAN": reduction(reduce.reduce_mean, True), "REDUCESUM": reduction(reduce.reduce_sum, False),
    "SOFTMAX": softmax(int_rows.softmax, norm.softmax),
    "LOGSOFTMAX": softmax(int_rows.log_softmax, norm.log_softmax),
}  # fmt: skip
