"""Lowering of normalization. Its constant parameters are floating point up to this point."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import EnnLowering, float_data
from edgewright.ir.graph import Array, Op, QParams, Value

_MIN_RANGE = 1e-9


def _parameter(op: Op, name: str, count: int, fill: float) -> Array:
    value = op.args.get(name)
    return np.full(count, fill) if value is None else float_data(value)


def batch_norm_scale_shift(op: Op) -> tuple[Any, Any]:
    """Scale and shift per channel of an inference-mode batch norm."""
    count = op.args["input"].bound[1]
    mean, var = (float_data(op.args[name]) for name in ("running_mean", "running_var"))
    factor = _parameter(op, "weight", count, 1.0) / np.sqrt(var + op.args["eps"])
    return factor, _parameter(op, "bias", count, 0.0) - factor * mean


def gamma_constant(low: EnnLowering, data: Array, x: Value) -> Value:
    """The weight of a normalization, quantized per tensor if its input is quantized."""
    if x.q is None:
        return low.constant(np.asarray(data, np.float32))
    first, last = np.iinfo(x.q.dtype).min, np.iinfo(x.q.dtype).max
    low_end, high_end = min(0.0, float(data.min(initial=0))), max(0.0, float(data.max(initial=0)))
    scale = max(high_end - low_end, _MIN_RANGE) / (last - first)
    q = QParams(scale, int(np.clip(round(first - low_end / scale), first, last)), x.q.dtype, first, last)
    quantized = np.clip(np.rint(data / scale) + np.asarray(q.zero_point), first, last)
    return low.constant(quantized.astype(q.dtype), q)


def _affine(low: EnnLowering, op: Op, count: int) -> list[Value]:
    """Weight and bias, which ENN requires; the bias is float32."""
    weight = gamma_constant(low, _parameter(op, "weight", count, 1.0), op.args["input"])
    return [weight, low.constant(np.asarray(_parameter(op, "bias", count, 0.0), np.float32))]


def batch_norm(low: EnnLowering, op: Op) -> None:
    x = op.args["input"]
    statistics = [low.get(op.args[name]) for name in ("running_mean", "running_var")]
    inputs = [low.get(x), *_affine(low, op, x.bound[1]), *statistics]
    low.finish(op, "BatchNormalization", inputs, with_quant_dtype=False, epsilon=float(op.args["eps"]))


def layer_norm(low: EnnLowering, op: Op) -> None:
    """Over the last dimension."""
    x = op.args["input"]
    inputs = [low.get(x), *_affine(low, op, x.bound[-1])]
    low.finish(op, "LAYERNORM", inputs, epsilon=float(op.args.get("eps", 1e-5)))


def group_norm(low: EnnLowering, op: Op) -> None:
    x = op.args["input"]
    groups = op.args["num_groups"] if "num_groups" in op.args else op.args["group"]
    inputs = [low.get(x), *_affine(low, op, x.bound[1])]
    epsilon = float(op.args.get("eps", 1e-5))
    low.finish(op, "GROUPNORM", inputs, with_quant_dtype=False, num_groups=int(groups), epsilon=epsilon)


def rms_norm(low: EnnLowering, op: Op) -> None:
    x, eps = op.args["input"], op.args.get("eps")
    shape = [int(n) for n in op.args["normalized_shape"]]
    weight = op.args.get("weight")
    gamma = gamma_constant(low, np.ones(shape) if weight is None else float_data(weight), x)
    epsilon = float(np.finfo(np.float32).eps) if eps is None else float(eps)
    inputs = [low.get(x), gamma]
    low.finish(
        op, "RMSNORM", inputs, with_quant_dtype=False, normalize_shape=shape, param_num=len(inputs), epsilon=epsilon
    )
