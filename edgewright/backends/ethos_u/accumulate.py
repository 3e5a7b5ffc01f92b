"""What convolutions, transposed ones and matrix products have in common: accumulators, their units, and biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT32, INT48, TosaLowering, scale_of
from edgewright.ir.graph import Array, Op, Value


def units_of(op: Op) -> Array:
    """What a unit of each channel of an accumulator is worth: the input's scale times the weight's."""
    weight = op.args["weight"]
    return np.asarray(scale_of(op.args["input"]) * np.asarray(weight.q.scale if weight.q is not None else 1.0))


def accumulator(value: Value) -> Any:
    if value.q is None:
        return FLOAT32
    return INT48 if value.q.dtype.itemsize == 2 else INT32


def bias_of(low: TosaLowering, op: Op, units: Array, channels: int) -> Value:
    """The bias in units of the accumulator: the input's scale times the weight's."""
    bias, x = op.args.get("bias"), op.args["input"]
    data = np.zeros(channels) if bias is None else np.asarray(bias.data, np.float64)
    if bias is not None and bias.q is not None:
        data = (data - np.asarray(bias.q.zero_point)) * np.asarray(bias.q.scale)
    if x.q is None:
        return low.tensor(data, np.float32)
    kind = accumulator(x)
    bits = 31 if kind == INT32 else 47
    stored = np.clip(np.round(data / units), -(2**bits), 2**bits - 1)
    return low.tensor(stored, kind)
