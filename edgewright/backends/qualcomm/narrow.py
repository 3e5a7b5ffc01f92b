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
from edgewright.ir.graph import Op, Value

_TIMES = 16  # the largest multiple that a block may be of its channel's scale
_FEW = 64  # products of a sum
_WHOLE = 2**31 - 1


def finer_weight(op: Op, weight: Value, target: Any) -> Value:
    """The weight, in other words if they lose less and take no more room."""
    x, q = op.args["input"], weight.q
    if q is None or q.qmax - q.qmin > 15 or q.block is not None or x.q is None or x.q.dtype.itemsize < 2:
        return weight
    if op.kind not in ("linear", "conv1d", "conv2d") or not _bias_fits(op, weight):
        return weight
    outputs, inputs, *window = weight.bound
    if op.args.get("groups", 1) == 1 and inputs % BLOCK == 0 and set(window) <= {1} and target.htp.arch >= 69:
        scales = np.resize(np.asarray(q.scale, np.float64), outputs)
        block = replace(q, scale=tuple(scales.tolist()), zero_point=(0,) * outputs, axis=0, block=inputs)
        return replace(weight, q=block)
    if inputs * int(np.prod(window, dtype=np.int64)) >= _FEW:
        return weight
    scale = np.asarray(q.scale, np.float64) / _TIMES
    wide = replace(q, scale=tuple(scale.tolist()) if scale.ndim else float(scale), qmin=q.qmin * _TIMES,
                   qmax=q.qmax * _TIMES)  # fmt: skip
    assert weight.data is not None
    return replace(weight, data=(weight.data * _TIMES).astype(weight.data.dtype), q=wide)


def _bias_fits(op: Op, weight: Value) -> bool:
    """In 32 bits, of finer steps."""
    bias = op.args.get("bias")
    if bias is None:
        return True
    return bool((np.abs(real_numbers(bias)) * _TIMES <= _WHOLE * scale_of(op.args["input"]) * scale_of(weight)).all())
