"""Lowering of normalisations. Their constants are real numbers until here."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import EnnLowering, real_numbers
from edgewright.ir.graph import Array, Op, QParams, Value

_LEAST = 1e-9  # of ranges


def _given(op: Op, name: str, count: int, fill: float) -> Array:
    value = op.args.get(name)
    return np.full(count, fill) if value is None else real_numbers(value)


def batch_norm_factors(op: Op) -> tuple[Any, Any]:
    """What a batch norm multiplies by and adds."""
    count = op.args["input"].bound[1]
    mean, var = (real_numbers(op.args[name]) for name in ("running_mean", "running_var"))
    factor = _given(op, "weight", count, 1.0) / np.sqrt(var + op.args["eps"])
    return factor, _given(op, "bias", count, 0.0) - factor * mean


def scaling(low: EnnLowering, data: Array, x: Value) -> Value:
    """What a normalisation multiplies by: integers, where it has those, with one range for all."""
    if x.q is None:
        return low.constant(np.asarray(data, np.float32))
    first, last = np.iinfo(x.q.dtype).min, np.iinfo(x.q.dtype).max
    low_end, high_end = min(0.0, float(data.min(initial=0))), max(0.0, float(data.max(initial=0)))
    scale = max(high_end - low_end, _LEAST) / (last - first)
    q = QParams(scale, int(np.clip(round(first - low_end / scale), first, last)), x.q.dtype, first, last)
    stored = np.clip(np.rint(data / scale) + np.asarray(q.zero_point), first, last)
    return low.constant(stored.astype(q.dtype), q)


def _affine(low: EnnLowering, op: Op, count: int) -> list[Value]:
    """Weight and bias, which ENN always wants; a bias stays a real number."""
    weight = scaling(low, _given(op, "weight", count, 1.0), op.args["input"])
    return [weight, low.constant(np.asarray(_given(op, "bias", count, 0.0), np.float32))]


def batch_norm(low: EnnLowering, op: Op) -> None:
    x = op.args["input"]
    statistics = [low.get(op.args[name]) for name in ("running_mean", "running_var")]
    inputs = [low.get(x), *_affine(low, op, x.bound[1]), *statistics]
    low.finish(op, "BatchNormalization", inputs, told=False, epsilon=float(op.args["eps"]))


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
    low.finish(op, "GROUPNORM", inputs, told=False, num_groups=int(groups), epsilon=epsilon)


def rms_norm(low: EnnLowering, op: Op) -> None:
    x, given = op.args["input"], op.args.get("eps")
    shape = [int(n) for n in op.args["normalized_shape"]]
    weight = op.args.get("weight")
    gamma = scaling(low, np.ones(shape) if weight is None else real_numbers(weight), x)
    epsilon = float(np.finfo(np.float32).eps) if given is None else float(given)
    inputs = [low.get(x), gamma]
    low.finish(op, "RMSNORM", inputs, told=False, normalize_shape=shape, param_num=len(inputs), epsilon=epsilon)
