"""Accumulator types, scales and biases shared by convolutions and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT32, INT48, TosaLowering, scale_of
from edgewright.ir.graph import Array, Op, Value


def accumulator_scales(op: Op) -> Array:
    """Scale of the accumulator per output channel: input scale times weight scale."""
    weight = op.args["weight"]
    return np.asarray(scale_of(op.args["input"]) * np.asarray(weight.q.scale if weight.q is not None else 1.0))


def accumulator_type(value: Value) -> Any:
    if value.q is None:
        return FLOAT32
    return INT48 if value.q.dtype.itemsize == 2 else INT32


def quantized_bias(low: TosaLowering, op: Op, units: Array, channels: int) -> Value:
    """The bias in units of the accumulator."""
    bias, x = op.args.get("bias"), op.args["input"]
    data = np.zeros(channels) if bias is None else np.asarray(bias.data, np.float64)
    if bias is not None and bias.q is not None:
        data = (data - np.asarray(bias.q.zero_point)) * np.asarray(bias.q.scale)
    if x.q is None:
        return low.const(data, np.float32)
    kind = accumulator_type(x)
    bits = 31 if kind == INT32 else 47
    quantized = np.clip(np.round(data / units), -(2**bits), 2**bits - 1)
    return low.const(quantized, kind)
