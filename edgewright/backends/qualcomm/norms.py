"""Lowering of normalization. Its constant parameters are floating point up to this point."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import (
    INT32,
    LARGEST_FACTOR,
    QnnLowering,
    real_numbers,
    result,
    scale_of,
    unsigned,
)
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import identity

_WHOLE = 2**31 - 1
_LEAST = 1e-9  # of scales


def scaling(low: QnnLowering, data: Array, x: Value, *, signed: bool = True) -> Value:
    """The weight of a normalization: unsigned with a zero point, or symmetric int16 if ``signed``."""
    if x.q is None:
        return low.constant(data.astype(np.float32))
    if x.q.dtype.itemsize > 1 and signed:
        scale = max(float(np.abs(data).max(initial=0)), _LEAST) / LARGEST_FACTOR
        q = QParams(scale, 0, np.dtype(np.int16), -LARGEST_FACTOR, LARGEST_FACTOR)
    else:
        first, last = min(0.0, float(data.min(initial=0))), max(0.0, float(data.max(initial=0)))
        most = int(np.iinfo(x.q.dtype).max)
        scale = max(last - first, _LEAST) / most
        q = QParams(scale, round(-first / scale), x.q.dtype, 0, most)
    stored = np.clip(np.round(data / scale) + np.asarray(q.zero_point), q.qmin, q.qmax)
    return low.constant(stored.astype(q.dtype), q)


def shift(low: QnnLowering, data: Array, x: Value, factor: Value | None = None) -> Value:
    """The bias of a normalization as int32, at the scale of the product with ``factor`` if it is passed."""
    if x.q is None:
        return low.constant(data.astype(np.float32))
    scale = max(float(np.abs(data).max(initial=0)), _LEAST) / _WHOLE
    if factor is not None:
        scale = float(scale_of(x) * scale_of(factor))
    stored = np.clip(np.round(data / scale), -_WHOLE, _WHOLE).astype(np.int32)
    return low.constant(stored, QParams(scale, 0, INT32, -_WHOLE, _WHOLE))


def _given(op: Op, name: str, count: int, fill: float) -> Array:
    value = op.args.get(name)
    return np.full(count, fill) if value is None else real_numbers(value).reshape(-1)


def batch_norm_factors(op: Op) -> tuple[Any, Any]:
    """Scale and shift per channel of an inference-mode batch norm."""
    count = op.args["input"].bound[1]
    mean, var = (real_numbers(op.args[name]) for name in ("running_mean", "running_var"))
    factor = _given(op, "weight", count, 1.0) / np.sqrt(var + op.args["eps"])
    return factor, _given(op, "bias", count, 0.0) - factor * mean


def batch_norm(low: QnnLowering, op: Op) -> None:
    x = op.args["input"]
    rank = len(x.shape)
    order = (0, *range(2, rank), 1)
    factor, added = batch_norm_factors(op)
    weight = scaling(low, factor, x)
    low.finish(op, order, "Batchnorm", [low.get(x, order), weight, shift(low, added, x, weight)])


def layer_norm(low: QnnLowering, op: Op) -> None:
    """Over the last dimension."""
    x = op.args["input"]
    count, rank = x.bound[-1], len(x.shape)
    factor, added = _given(op, "weight", count, 1.0), _given(op, "bias", count, 0.0)
    inputs = [low.get(x), scaling(low, factor, x), shift(low, added, x)]
    params = {"epsilon": float(op.args.get("eps", 1e-5)), "axes": unsigned([rank - 1])}
    low.finish(op, identity(len(result(op).shape)), "LayerNorm", inputs, **params)


def rms_norm(low: QnnLowering, op: Op) -> None:
    """Over the last dimension."""
    x = op.args["input"]
    count, rank = x.bound[-1], len(x.shape)
    inputs = [low.get(x), scaling(low, _given(op, "weight", count, 1.0), x), shift(low, np.zeros(count), x)]
    given = op.args.get("eps")
    epsilon = float(np.finfo(np.float32).eps) if given is None else float(given)
    low.finish(op, identity(rank), "RmsNorm", inputs, epsilon=epsilon, axes=unsigned([rank - 1]))


def group_norm(low: QnnLowering, op: Op) -> None:
    x = op.args["input"]
    rank, count = len(x.shape), x.bound[1]
    order = (0, *range(2, rank), 1)
    inputs = [
        low.get(x, order),
        scaling(low, _given(op, "weight", count, 1.0), x),
        shift(low, _given(op, "bias", count, 0.0), x),
    ]
    groups = op.args["num_groups"] if "num_groups" in op.args else op.args["group"]
    low.finish(op, order, "GroupNorm", inputs, epsilon=float(op.args["eps"]), group=int(groups))


def instance_norm(low: QnnLowering, op: Op) -> None:
    """Over all elements of a channel; 1-D becomes 2-D of height 1."""
    x, out = op.args["input"], result(op)
    rank, count = len(x.shape), x.bound[1]
    order = (0, *range(2, rank), 1)
    held = low.get(x, order)
    inputs = [
        low.reshaped(held, [held.bound[0], 1, *held.bound[1:]]) if rank == 3 else held,
        scaling(low, _given(op, "weight", count, 1.0), x, signed=False),
        shift(low, _given(op, "bias", count, 0.0), x),
    ]
    made = low.temporary(inputs[0].bound, out)
    low.into(op, made, "InstanceNorm", inputs, epsilon=float(op.args["eps"]))
    low.alias(out, order, low.reshaped(made, held.bound))
