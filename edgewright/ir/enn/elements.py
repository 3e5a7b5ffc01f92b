"""Meaning of arithmetic, functions of one number, reductions and normalisations: on real numbers, as operands hold
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.enn.numbers import Values, inputs_of, result_of
from edgewright.ir.graph import Array, Op
from edgewright.ir.reference import activations, elementwise, norm, norm_forms, reduce

Meaning = Callable[[Values, Op], None]
Function = Callable[..., Any]


def of(function: Function) -> Meaning:
    """A function of as many real numbers as there are operands."""

    def meaning(values: Values, op: Op) -> None:
        with np.errstate(all="ignore"):
            made = function(*(values.real(v) for v in inputs_of(op)))
        values.give(result_of(op), np.asarray(made))

    return meaning


def rsqrt(x: Array) -> Array:
    return np.float32(1) / np.sqrt(x)


def clip(values: Values, op: Op) -> None:
    x = values.real(inputs_of(op)[0])
    kind = x.dtype.type
    values.give(result_of(op), np.clip(x, kind(op.args["minimum"]), kind(op.args["maximum"])))


def prelu(values: Values, op: Op) -> None:
    """A slope for all, or one for each channel."""
    x, slope = (values.real(v) for v in inputs_of(op))
    slope = slope.reshape(()) if slope.size == 1 else slope.reshape(-1, *(1,) * (x.ndim - 2))
    values.give(result_of(op), np.where(x < 0, x * slope, x))


def softmax(function: Function) -> Meaning:
    def meaning(values: Values, op: Op) -> None:
        values.give(result_of(op), function(values.real(inputs_of(op)[0]), int(op.args["axis"])))

    return meaning


def reduced(function: Function) -> Meaning:
    def meaning(values: Values, op: Op) -> None:
        axes = [int(a) for a in op.args["axis"]]
        values.give(result_of(op), function(values.real(inputs_of(op)[0]), axes, bool(op.args["keep_dims"])))

    return meaning


def batch_norm(values: Values, op: Op) -> None:
    x, weight, bias, mean, var = (values.real(v) for v in inputs_of(op))
    made = norm.batch_norm_inference(x, weight, bias, mean, var, 0.0, float(op.args["epsilon"]))
    values.give(result_of(op), made[0] if isinstance(made, tuple) else made)


def layer_norm(values: Values, op: Op) -> None:
    x, weight, bias = (values.real(v) for v in inputs_of(op))
    made = norm.layer_norm(x, [x.shape[-1]], weight, bias, float(op.args["epsilon"]))
    values.give(result_of(op), made[0] if isinstance(made, tuple) else made)


def group_norm(values: Values, op: Op) -> None:
    x, weight, bias = (values.real(v) for v in inputs_of(op))
    groups, epsilon = int(op.args["num_groups"]), float(op.args["epsilon"])
    values.give(result_of(op), norm_forms.group_norm(x, groups, weight, bias, epsilon))


def rms_norm(values: Values, op: Op) -> None:
    x, gamma = (values.real(v) for v in inputs_of(op))
    shape = [int(n) for n in op.args["normalize_shape"]]
    values.give(result_of(op), norm_forms.rms_norm(x, shape, gamma, float(op.args["epsilon"])))


BINARY: dict[str, Function] = {
    "ELTSUM": np.add, "SUB": np.subtract, "ELTMUL": np.multiply, "ELTDIV": np.divide, "MAXIMUM": np.maximum,
    "MIN": np.minimum, "POW": elementwise.pow,
}  # fmt: skip
UNARY: dict[str, Function] = {
    "RELU": activations.relu, "HARDSWISH": activations.hardswish, "HardSigmoid": activations.hardsigmoid,
    "GELU": activations.gelu, "SIGMOID": activations.sigmoid, "TANH": np.tanh, "LOG": np.log, "SQRT": np.sqrt,
    "RSQRT": rsqrt, "Sin": np.sin, "Cos": np.cos,
}  # fmt: skip
MEANS: dict[str, Meaning] = {
    "REDUCEMEAN": reduced(reduce.reduce_mean), "REDUCESUM": reduced(reduce.reduce_sum),
    "SOFTMAX": softmax(norm.softmax), "LOGSOFTMAX": softmax(norm.log_softmax),
}  # fmt: skip
