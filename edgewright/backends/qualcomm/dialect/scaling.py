"""Requantization of exact accumulators.

8-bit results are rescaled in float32 (``ir/numerics.py``), wider ones in double precision; both round half to even. The
emulator's results differ from either by one step in about 2 % of 8-bit values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.graph import Array, QParams, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.requant_scale import FloatScale, all_8bit

_MULTIPLES = 16  # 4-bit multiplier of a block's scale


def block_scales(q: QParams, channels: int) -> tuple[Array, Array]:
    """One scale per output channel, and the integer multipliers (1 to 16) of its blocks."""
    scales = np.asarray(q.scale, np.float64).reshape(channels, -1)
    units = scales.max(axis=1) / _MULTIPLES
    return units, np.clip(np.round(scales / units[:, None]), 1, _MULTIPLES).astype(np.int64)


def integer_weights(value: Value, data: Array) -> tuple[Array, Array]:
    """Weights minus the zero point, and one scale per output channel or per tensor. Blockwise weights, whose output
    channels are last, are multiplied with the integer multipliers of their blocks."""
    q = value.q
    assert q is not None
    if q.block is None:
        zero = np.asarray(q.zero_point, np.int64)
        shape = [1] * data.ndim
        if q.axis is not None and zero.ndim:
            shape[q.axis] = zero.size
            zero = zero.reshape(shape)
        return data.astype(np.int64) - zero, as_float32(q.scale).reshape(-1)
    units, multiples = block_scales(q, data.shape[-1])
    return data.astype(np.int64) * np.repeat(multiples.T, q.block, axis=0), as_float32(units)


def accumulator_bias(value: Value, data: Array, units: Array) -> Array:
    """The bias in the accumulator's scale, rounded if it has another one."""
    numbers = data.astype(np.float64).reshape(-1)
    if value.q is not None:
        scale = as_float32(value.q.scale).astype(np.float64).reshape(-1)
        if np.allclose(scale, units, 1e-5, 0):
            return data.astype(np.int64).reshape(-1)
        numbers = numbers * scale
    return np.asarray(np.rint(numbers / units), np.float64).astype(np.int64)


def requantize_accumulators(total: Array, x: Value, scales: Array, out: Value) -> Array:
    """Requantize exact accumulators. Channels are last; ``scales`` are those of the weights."""
    assert x.q is not None and out.q is not None
    if all_8bit(x, out):
        return QNN.requantize(total, as_float32(x.q.scale) * scales / as_float32(out.q.scale), out.q)
    return accumulator_scale(x, scales, out).apply(total).astype(out.q.dtype)


def accumulator_scale(x: Value, scales: Array, out: Value) -> FloatScale:
    assert x.q is not None and out.q is not None
    units = as_float32(x.q.scale).astype(np.float64) * scales.astype(np.float64)
    factors: Any = (units / as_float32(out.q.scale).astype(np.float64)).reshape(-1)
    return FloatScale(tuple(factors.tolist()), int(np.asarray(out.q.zero_point)), out.q.qmin, out.q.qmax, "real")
