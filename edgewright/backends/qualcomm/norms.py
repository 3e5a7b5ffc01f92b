"""Lowering of normalization. Its constant parameters are floating point up to this point."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.qualcomm.conv import convolution
from edgewright.backends.qualcomm.lower import (
    INT32,
    MAX_INT16_WEIGHT,
    QnnLowering,
    as_uint32,
    dequantize_constant,
    output_of,
    scale_of,
)
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import identity
from edgewright.lowering.passes.value_storage import representable_range

_INT32_MAX = 2**31 - 1
_MIN_SCALE = 1e-9  # of scales
_MAX_FACTOR_ERROR = 0.5  # steps of a batch norm's output that rounding its factors may cost
_INT8_MAX = 127


def norm_weight(low: QnnLowering, data: Array, x: Value, *, signed: bool = True) -> Value:
    """The weight of a normalization: unsigned with a zero point, or symmetric int16 if ``signed``."""
    if x.q is None:
        return low.constant(data.astype(np.float32))
    if x.q.dtype.itemsize > 1 and signed:
        scale = max(float(np.abs(data).max(initial=0)), _MIN_SCALE) / MAX_INT16_WEIGHT
        q = QParams(scale, 0, np.dtype(np.int16), -MAX_INT16_WEIGHT, MAX_INT16_WEIGHT)
    else:
        first, last = min(0.0, float(data.min(initial=0))), max(0.0, float(data.max(initial=0)))
        maximum = int(np.iinfo(x.q.dtype).max)
        scale = max(last - first, _MIN_SCALE) / maximum
        q = QParams(scale, round(-first / scale), x.q.dtype, 0, maximum)
    data_int = np.clip(np.round(data / scale) + np.asarray(q.zero_point), q.qmin, q.qmax)
    return low.constant(data_int.astype(q.dtype), q)


def norm_bias(low: QnnLowering, data: Array, x: Value, factor: Value | None = None) -> Value:
    """The bias of a normalization as int32, at the scale of the product with ``factor`` if it is passed."""
    if x.q is None:
        return low.constant(data.astype(np.float32))
    scale = max(float(np.abs(data).max(initial=0)), _MIN_SCALE) / _INT32_MAX
    if factor is not None:
        scale = float(scale_of(x) * scale_of(factor))
    data_int = np.clip(np.round(data / scale), -_INT32_MAX, _INT32_MAX).astype(np.int32)
    return low.constant(data_int, QParams(scale, 0, INT32, -_INT32_MAX, _INT32_MAX))


def _parameter(op: Op, name: str, count: int, fill: float) -> Array:
    value = op.args.get(name)
    return np.full(count, fill) if value is None else dequantize_constant(value).reshape(-1)


def batch_norm_factors(op: Op) -> tuple[Any, Any]:
    """Scale and shift per channel of an inference-mode batch norm."""
    count = op.args["input"].bound[1]
    mean, var = (dequantize_constant(op.args[name]) for name in ("running_mean", "running_var"))
    factor = _parameter(op, "weight", count, 1.0) / np.sqrt(var + op.args["eps"])
    return factor, _parameter(op, "bias", count, 0.0) - factor * mean


def batch_norm(low: QnnLowering, op: Op) -> None:
    """``Batchnorm``, or a 1x1 depthwise convolution where its 8-bit factors would be too coarse.

    ``Batchnorm`` has one scale for the factors of all channels. A factor is the inverse of its channel's deviation, so
    that channels with small factors have large elements, and the rounding error of the factor is multiplied by these. A
    depthwise convolution has a scale for each channel.
    """
    x = op.args["input"]
    rank = len(x.shape)
    order = (0, *range(2, rank), 1)
    factor, bias = batch_norm_factors(op)
    weight = norm_weight(low, factor, x)
    # Depthwise convolutions have three groups or more; with 16-bit elements, factors have 16 bits, too.
    if x.q is not None and x.q.dtype.itemsize == 1 and rank in (3, 4) and factor.size > 2:
        error = np.abs(dequantize_constant(weight) - factor).max(initial=0) * _largest_magnitude(x)
        if error > _MAX_FACTOR_ERROR * float(scale_of(output_of(op))):
            convolution(low, _as_depthwise(op, factor, bias))
            return
    low.finish(op, order, "Batchnorm", [low.get(x, order), weight, norm_bias(low, bias, x, weight)])


def _largest_magnitude(value: Value) -> float:
    low, high = representable_range(value.q) or (0.0, 0.0)
    return max(-low, high)


def _as_depthwise(op: Op, factor: Array, bias: Array) -> Op:
    """A batch norm as a depthwise convolution whose windows have one element."""
    spatial = (1,) * (len(op.args["input"].shape) - 2)
    scales = np.maximum(np.abs(factor), _MIN_SCALE) / _INT8_MAX
    q = QParams(tuple(scales.tolist()), (0,) * factor.size, np.dtype(np.int8), -_INT8_MAX, _INT8_MAX, axis=0)
    data = np.round(factor / scales).astype(np.int8).reshape(-1, 1, *spatial)
    args = {
        "input": op.args["input"],
        "weight": Value("", q.dtype, data.shape, data=data, q=q),
        "bias": Value("", np.dtype(np.float32), bias.shape, data=bias.astype(np.float32)),
        "padding": [0],
        "groups": factor.size,
        "limits": op.args.get("limits"),
    }
    return Op(f"conv{len(spatial)}d", args, op.outputs, op.origin)


def layer_norm(low: QnnLowering, op: Op) -> None:
    """Over the last dimension."""
    x = op.args["input"]
    count, rank = x.bound[-1], len(x.shape)
    factor, bias = _parameter(op, "weight", count, 1.0), _parameter(op, "bias", count, 0.0)
    inputs = [low.get(x), norm_weight(low, factor, x), norm_bias(low, bias, x)]
    params = {"epsilon": float(op.args.get("eps", 1e-5)), "axes": as_uint32([rank - 1])}
    low.finish(op, identity(len(output_of(op).shape)), "LayerNorm", inputs, **params)


def rms_norm(low: QnnLowering, op: Op) -> None:
    """Over the last dimension."""
    x = op.args["input"]
    count, rank = x.bound[-1], len(x.shape)
    inputs = [low.get(x), norm_weight(low, _parameter(op, "weight", count, 1.0), x), norm_bias(low, np.zeros(count), x)]
    eps = op.args.get("eps")
    epsilon = float(np.finfo(np.float32).eps) if eps is None else float(eps)
    low.finish(op, identity(rank), "RmsNorm", inputs, epsilon=epsilon, axes=as_uint32([rank - 1]))


def group_norm(low: QnnLowering, op: Op) -> None:
    x = op.args["input"]
    rank, count = len(x.shape), x.bound[1]
    order = (0, *range(2, rank), 1)
    inputs = [
        low.get(x, order),
        norm_weight(low, _parameter(op, "weight", count, 1.0), x),
        norm_bias(low, _parameter(op, "bias", count, 0.0), x),
    ]
    groups = op.args["num_groups"] if "num_groups" in op.args else op.args["group"]
    low.finish(op, order, "GroupNorm", inputs, epsilon=float(op.args["eps"]), group=int(groups))


def instance_norm(low: QnnLowering, op: Op) -> None:
    """Over all elements of a channel; 1-D becomes 2-D of height 1."""
    x, out = op.args["input"], output_of(op)
    rank, count = len(x.shape), x.bound[1]
    order = (0, *range(2, rank), 1)
    source = low.get(x, order)
    inputs = [
        low.reshape(source, [source.bound[0], 1, *source.bound[1:]]) if rank == 3 else source,
        norm_weight(low, _parameter(op, "weight", count, 1.0), x, signed=False),
        norm_bias(low, _parameter(op, "bias", count, 0.0), x),
    ]
    result = low.temporary(inputs[0].bound, out)
    low.emit_into(op, result, "InstanceNorm", inputs, epsilon=float(op.args["eps"]))
    low.alias(out, order, low.reshape(result, source.bound))
