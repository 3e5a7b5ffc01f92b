"""References of elementwise operators, reductions and normalization: on dequantized values, except where
``numerics.py`` defines integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir import int_rows
from edgewright.ir.aten.reference import activations, elementwise, norm, norm_variants, reduce
from edgewright.ir.enn.numerics import Values, byte, centred, inputs_of, integers, result_of
from edgewright.ir.float_scale import mean_scale, product_scale
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import XNNPACK

Meaning = Callable[[Values, Op], None]
Function = Callable[..., Any]


def of(function: Function) -> Meaning:
    """A function applied to the dequantized operands."""

    def meaning(values: Values, op: Op) -> None:
        with np.errstate(all="ignore"):
            made = function(*(values.real(v) for v in inputs_of(op)))
        values.give(result_of(op), np.asarray(made))

    return meaning


def fixed_sum(a: Value, b: Value, out: Value) -> bool:
    """True if 8-bit operands are added with 21-bit fixed-point factors: the scale ratios are in their range."""
    if not (byte(a) and byte(b) and byte(out)):
        return False
    assert a.q is not None and b.q is not None and out.q is not None
    return 1 <= XNNPACK.sum_factors((a.q, b.q), out.q)[2] <= 30


def sum_of_two(sign: int, function: Function) -> Meaning:
    real = of(function)

    def meaning(values: Values, op: Op) -> None:
        (a, b), out = inputs_of(op), result_of(op)
        if not fixed_sum(a, b, out):
            return real(values, op)
        assert a.q is not None and b.q is not None and out.q is not None
        x, y = (centred(v, values.stored(v)).astype(np.int64) for v in (a, b))
        return values.keep(out, XNNPACK.sum(x, sign * y, (a.q, b.q), out.q, None))

    return meaning


def product_of_two(values: Values, op: Op) -> None:
    (a, b), out = inputs_of(op), result_of(op)
    if not (byte(a) and byte(b) and byte(out)):
        return of(np.multiply)(values, op)
    x, y = (centred(v, values.stored(v)) for v in (a, b))
    return values.keep(out, np.asarray(product_scale(a, b, out, None).apply(x * y).astype(out.dtype)))


def rsqrt(x: Array) -> Array:
    return np.float32(1) / np.sqrt(x)


def clip(values: Values, op: Op) -> None:
    x = values.real(inputs_of(op)[0])
    kind = x.dtype.type
    values.give(result_of(op), np.clip(x, kind(op.args["minimum"]), kind(op.args["maximum"])))


def prelu(values: Values, op: Op) -> None:
    """One slope for all channels, or one per channel."""
    x, slope = (values.real(v) for v in inputs_of(op))
    slope = slope.reshape(()) if slope.size == 1 else slope.reshape(-1, *(1,) * (x.ndim - 2))
    values.give(result_of(op), np.where(x < 0, x * slope, x))


def softmax(whole: Function, real: Function) -> Meaning:
    """With one reference for quantized and one for floating-point inputs."""

    def meaning(values: Values, op: Op) -> None:
        x, axis = inputs_of(op)[0], int(op.args["axis"])
        made = whole(x, values.stored(x), axis) if integers(op, x) else real(values.real(x), axis)
        values.give(result_of(op), made)

    return meaning


def reduced(function: Function, mean: bool) -> Meaning:
    def meaning(values: Values, op: Op) -> None:
        x, out, keep = inputs_of(op)[0], result_of(op), bool(op.args["keep_dims"])
        axes = [int(a) for a in op.args["axis"]]
        if not integers(op, x):
            return values.give(out, function(values.real(x), axes, keep))
        total = np.asarray(centred(x, values.stored(x)).sum(axis=tuple(axes), keepdims=keep))
        count = int(np.prod([x.bound[a] for a in axes])) if mean else 1
        return values.keep(out, np.asarray(mean_scale(x, out, count).apply(total).astype(out.dtype)))

    return meaning


def batch_norm(values: Values, op: Op) -> None:
    x, weight, bias, mean, var = (values.real(v) for v in inputs_of(op))
    made = norm.batch_norm_inference(x, weight, bias, mean, var, 0.0, float(op.args["epsilon"]))
    values.give(result_of(op), made[0] if isinstance(made, tuple) else made)


def _rows(values: Values, op: Op, shape: tuple[int, ...], centre: bool) -> Array | None:
    """Quantized input reshaped to ``shape`` and normalized over the last dimension with exact sums; None if the input
    is floating point or too long."""
    x = inputs_of(op)[0]
    if not integers(op, x) or not int_rows.norm_fits_int64(x, shape[-1]):
        return None
    given = centred(x, values.stored(x)).reshape(shape)
    return int_rows.normalize_rows(x, given, float(op.args["epsilon"]), centre).reshape(x.bound)


def layer_norm(values: Values, op: Op) -> None:
    x, weight, bias = inputs_of(op)
    made = _rows(values, op, x.bound, True)
    if made is None:
        real, by, plus = (values.real(v) for v in (x, weight, bias))
        whole = norm.layer_norm(real, [x.bound[-1]], by, plus, float(op.args["epsilon"]))
        made = whole[0] if isinstance(whole, tuple) else whole
    else:
        made = made * values.real(weight) + values.real(bias)
    values.give(result_of(op), made)


def group_norm(values: Values, op: Op) -> None:
    x, weight, bias = inputs_of(op)
    groups, epsilon = int(op.args["num_groups"]), float(op.args["epsilon"])
    made = _rows(values, op, (x.bound[0], groups, int(np.prod(x.bound[1:])) // groups), True)
    if made is None:
        made = norm_variants.group_norm(values.real(x), groups, values.real(weight), values.real(bias), epsilon)
    else:
        by, plus = (values.real(v).reshape(-1, *(1,) * (len(x.bound) - 2)) for v in (weight, bias))
        made = made * by + plus
    values.give(result_of(op), made)


def rms_norm(values: Values, op: Op) -> None:
    x, gamma = inputs_of(op)
    shape = [int(n) for n in op.args["normalize_shape"]]
    outer = x.bound[: len(x.bound) - len(shape)]
    made = _rows(values, op, (*outer, int(np.prod(shape))), False)
    if made is None:
        made = norm_variants.rms_norm(values.real(x), shape, values.real(gamma), float(op.args["epsilon"]))
    else:
        made = made * values.real(gamma)
    values.give(result_of(op), made)


BINARY: dict[str, Meaning] = {
    "ELTSUM": sum_of_two(1, np.add), "SUB": sum_of_two(-1, np.subtract), "ELTMUL": product_of_two,
    "ELTDIV": of(np.divide), "MAXIMUM": of(np.maximum), "MIN": of(np.minimum), "POW": of(elementwise.pow),
}  # fmt: skip
UNARY: dict[str, Function] = {
    "RELU": activations.relu, "HARDSWISH": activations.hardswish, "HardSigmoid": activations.hardsigmoid,
    "GELU": activations.gelu, "SIGMOID": activations.sigmoid, "TANH": np.tanh, "LOG": np.log, "SQRT": np.sqrt,
    "RSQRT": rsqrt, "Sin": np.sin, "Cos": np.cos,
}  # fmt: skip
MEANS: dict[str, Meaning] = {
    "REDUCEMEAN": reduced(reduce.reduce_mean, True), "REDUCESUM": reduced(reduce.reduce_sum, False),
    "SOFTMAX": softmax(int_rows.softmax, norm.softmax),
    "LOGSOFTMAX": softmax(int_rows.log_softmax, norm.log_softmax),
}  # fmt: skip
