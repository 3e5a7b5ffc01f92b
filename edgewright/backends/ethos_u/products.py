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


def spread(op: Op, name: str, fill: int) -> list[int]:
    """Strides and the like: one number for all dimensions, and those of a sequence as of an image one pixel high."""
    given, dims = list(op.args[name]), len(op.args["weight"].shape) - 2
    given = given * dims if len(given) == 1 else given
    return [fill, *given] if dims == 1 else given


def pads_of(op: Op) -> list[int]:
    """Padding before and after each dimension; ``same`` is as much as keeps the size, the odd one at the end."""
    given = op.args["padding"]
    if not isinstance(given, str):
        return [p for p in spread(op, "padding", 0) for _ in (0, 1)]
    kernel = op.args["weight"].bound[2:]
    kernel = (1, *kernel) if len(kernel) == 1 else kernel
    whole = [d * (k - 1) if given == "same" else 0 for k, d in zip(kernel, spread(op, "dilation", 1), strict=True)]
    return [p for n in whole for p in (n // 2, n - n // 2)]
