"""Encoding of 4-bit weights for 16-bit activations (16a4w): chooses the QNN encoding with the most accurate results.

A weight of 16 times the integer and 1/16 of the scale is the same real number, but with 16-bit activations its results
measured about 20 dB closer to exact ones. For 1x1 windows a blockwise encoding expresses this in 4 bits: one block per
channel, whose scale is 16 times the channel's base scale. For larger windows only 8-bit weights do. These are used if
they cost little: for depthwise convolutions, which take the same space either way, and for products with few terms. All
other weights stay in plain 4 bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import dequantize_constant, scale_of
from edgewright.backends.qualcomm.target import BLOCK_MULTIPLE
from edgewright.ir.graph import Op, QParams, Value

_MULTIPLIER = 16  # largest ratio of a block's scale to its channel's
_FEW_TERMS = 64  # products of a sum
_INT32_MAX = 2**31 - 1


def refine_weight(op: Op, weight: Value, target: Any) -> Value:
    """The weight, re-encoded if that is more accurate and costs little space."""
    x, q = op.args["input"], weight.q
    if q is None or q.block is not None or x.q is None or x.q.dtype.itemsize < 2:
        return weight
    if op.kind not in ("linear", "conv1d", "conv2d"):
        return weight
    result = _widen(op, weight, target) if q.qmax - q.qmin <= 15 and _bias_fits(op, weight) else weight
    return _per_channel(result) if op.args.get("groups", 1) > 1 and set(weight.bound[1:]) == {1} else result


def _widen(op: Op, weight: Value, target: Any) -> Value:
    """16 times a 4-bit weight, blockwise or in 8 bits."""
    assert weight.q is not None and weight.data is not None
    outputs, inputs, *window = weight.bound
    if op.args.get("groups", 1) == 1 and inputs % BLOCK_MULTIPLE == 0 and set(window) <= {1} and target.htp.arch >= 69:
        return replace(weight, q=replace(_rescale(weight.q, 1, outputs), block=inputs))
    if inputs * int(np.prod(window, dtype=np.int64)) >= _FEW_TERMS:
        return weight
    q = replace(_rescale(weight.q, _MULTIPLIER), qmin=weight.q.qmin * _MULTIPLIER, qmax=weight.q.qmax * _MULTIPLIER)
    return replace(weight, data=(weight.data * _MULTIPLIER).astype(weight.data.dtype), q=q)


def _per_channel(weight: Value) -> Value:
    """A per-tensor scale repeated per channel: 1x1 depthwise convolutions are off by percents otherwise."""
    assert weight.q is not None
    return weight if weight.q.axis is not None else replace(weight, q=_rescale(weight.q, 1, weight.bound[0]))


def _rescale(q: QParams, divisor: int, channels: int = 0) -> QParams:
    """Divide scales by ``divisor``; repeat them for ``channels``."""
    scale = np.asarray(q.scale, np.float64) / divisor
    if channels:
        return replace(q, scale=tuple(np.resize(scale, channels).tolist()), zero_point=(0,) * channels, axis=0)
    return replace(q, scale=tuple(scale.tolist()) if scale.ndim else float(scale))


def _bias_fits(op: Op, weight: Value) -> bool:
    """True if the bias fits in int32 at 1/16 of the scale."""
    bias = op.args.get("bias")
    if bias is None:
        return True
    return bool(
        (
            np.abs(dequantize_constant(bias)) * _MULTIPLIER
            <= _INT32_MAX * scale_of(op.args["input"]) * scale_of(weight)
        ).all()
    )
