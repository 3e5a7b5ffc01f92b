"""Parameters of convolutions: integer weights, and the bias and scale of their accumulators.

Accumulators are exact, then rescaled and rounded once, half to even: 8-bit results in float32 (``numerics.py``), wider
ones in double precision. The emulator's results differ from either by one step in about 2 % of 8-bit values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

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


def accumulator_scale(x: Value, scales: Array, out: Value) -> FloatScale:
    """The requantization of accumulators; ``scales`` are those of the weights."""
    assert x.q is not None and out.q is not None
    single = all_8bit(x, out)
    kind: Any = np.float32 if single else np.float64
    with np.errstate(all="ignore"):
        units = as_float32(x.q.scale).astype(kind) * scales.astype(kind)
        factors = (units / as_float32(out.q.scale).astype(kind)).reshape(-1)
    zero = int(np.asarray(out.q.zero_point))
    return FloatScale(tuple(factors.tolist()), zero, out.q.qmin, out.q.qmax, "even" if single else "real")
