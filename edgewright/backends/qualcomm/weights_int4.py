"""Weights of 4 bits beside 16-bit activations, in those of QNN's encodings whose results are nearest to exact.

Sixteen times a weight, with a sixteenth of its scale, is the same number, and beside 16-bit activations its results
were measured to be some 20 dB nearer. Where a window has one pixel, blocks say that in 4 bits: each is sixteen times
its channel's scale. Where it has more, only 8 bits do. Weights of depthwise convolutions take as many bytes either way,
and those of sums of few products are few; others stay in 4 bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import real_numbers, scale_of
from edgewright.backends.qualcomm.target import BLOCK
from edgewright.ir.graph import Op, QParams, Value

_TIMES = 16  # the largest multiple that a block may be of its channel's scale
_FEW = 64  # products of a sum
_WHOLE = 2**31 - 1


def finer_weight(op: Op, weight: Value, target: Any) -> Value:
    """The weight, in other words if results are nearer and it takes no more room."""
    x, q = op.args["input"], weight.q
    if q is None or q.block is not None or x.q is None or x.q.dtype.itemsize < 2:
        return weight
    if op.kind not in ("linear", "conv1d", "conv2d"):
        return weight
    made = _wider(op, weight, target) if q.qmax - q.qmin <= 15 and _bias_fits(op, weight) else weight
    return _by_channel(made) if op.args.get("groups", 1) > 1 and set(weight.bound[1:]) == {1} else made


def _wider(op: Op, weight: Value, target: Any) -> Value:
    """Sixteen times a weight of 4 bits, in a block or in 8 bits."""
    assert weight.q is not None and weight.data is not None
    outputs, inputs, *window = weight.bound
    if op.args.get("groups", 1) == 1 and inputs % BLOCK == 0 and set(window) <= {1} and target.htp.arch >= 69:
        return replace(weight, q=replace(_scaled(weight.q, 1, outputs), block=inputs))
    if inputs * int(np.prod(window, dtype=np.int64)) >= _FEW:
        return weight
    q = replace(_scaled(weight.q, _TIMES), qmin=weight.q.qmin * _TIMES, qmax=weight.q.qmax * _TIMES)
    return replace(weight, data=(weight.data * _TIMES).astype(weight.data.dtype), q=q)


def _by_channel(weight: Value) -> Value:
    """One scale, told for each channel: of depthwise convolutions of one pixel, results are wrong by percents else."""
    assert weight.q is not None
    return weight if weight.q.axis is not None else replace(weight, q=_scaled(weight.q, 1, weight.bound[0]))


def _scaled(q: QParams, less: int, channels: int = 0) -> QParams:
    """Scales so many times less; for each of so many channels."""
    scale = np.asarray(q.scale, np.float64) / less
    if channels:
        return replace(q, scale=tuple(np.resize(scale, channels).tolist()), zero_point=(0,) * channels, axis=0)
    return replace(q, scale=tuple(scale.tolist()) if scale.ndim else float(scale))


def _bias_fits(op: Op, weight: Value) -> bool:
    """In 32 bits, of finer steps."""
    bias = op.args.get("bias")
    if bias is None:
        return True
    return bool((np.abs(real_numbers(bias)) * _TIMES <= _WHOLE * scale_of(op.args["input"]) * scale_of(weight)).all())
