"""Exponentials and quotients in 32-bit fixed point, as softmax and the reference sigmoid and tangent want them.

A raw integer with ``n`` integer bits stands for ``raw * 2**(n - 31)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Op
from edgewright.ir.tflite.rounding import high_product, multiplier, scale, scaled, shifted_right, stored, zero

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_BITS = 5  # integer bits of differences
SUM_BITS = 12  # integer bits of a row's sum
FIRST, ROUNDS = (1515870810, -1010580540), 3  # a line that is near the inverse, and how often Newton makes it better
# exp(-1/4), exp(-1/2), exp(-1), … exp(-16), of 31 bits
_STEPS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _saturated(x: Array) -> Array:
    return np.clip(x, _LOW, _HIGH)


def exponential(a: Array, bits: int = _BITS) -> Array:
    """``exp`` of numbers that are not positive, with ``bits`` integer bits; the result has none."""
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    made = _small_exponential(_saturated(rest << bits))
    for place, factor in enumerate(_STEPS[: bits + 2]):
        bit = ((rest - a) >> (fraction - 2 + place)) & 1
        made = np.where(bit == 1, high_product(made, factor), made)
    return np.where(a == 0, _HIGH, made)


def _small_exponential(a: Array) -> Array:
    """Between -1/4 and 0: a polynomial around -1/8."""
    base = 1895147668
    x = a + (1 << 28)
    x2 = high_product(x, x)
    x3, x4 = high_product(x2, x), high_product(x2, x2)
    third = high_product(shifted_right(x4, 2) + x3, 715827883)
    return _saturated(base + high_product(x + shifted_right(third + x2, 1), base))


def inverse(a: Array) -> Array:
    """``1 / (1 + a)`` for ``a`` between 0 and 1, by Newton's iteration."""
    half = (a + _HIGH + 1) >> 1
    x = FIRST[0] + high_product(half, FIRST[1])
    for _ in range(ROUNDS):
        missing = (1 << 29) - high_product(half, x)
        x = x + _saturated(high_product(x, missing) << 2)
    return _saturated(x << 1)


def powers(op: Op) -> tuple[Array, Array]:
    """The exponential for each of 256 steps below the largest element, and what it adds to a sum: 0 from where on
    there is nothing left of it."""
    x = op.args["inputs"][0]
    factor = min(float(np.float64(op.args["beta"]) * np.float64(scale(x)) * (1 << (31 - _BITS))), 2.0**31 - 1)
    mantissa, exponent = (int(v) for v in multiplier(factor))
    reach = int(np.floor(((1 << _BITS) - 1) * 2.0 ** (31 - _BITS) / 2.0**exponent))
    steps = np.arange(256, dtype=np.int64)
    near = steps <= reach
    made = np.where(near, exponential(scaled(np.where(near, -steps, 0), mantissa, exponent)), 0)
    return made, shifted_right(made, SUM_BITS)


def softmax(op: Op, arrays: Sequence[Array]) -> Array:
    """Along the last dimension; the result is in steps of 1/256."""
    given = arrays[0].astype(np.int64)
    each, parts = powers(op)
    below = given.max(axis=-1, keepdims=True) - given
    total = parts[below].sum(axis=-1, keepdims=True)
    room = 32 - np.floor(np.log2(total)).astype(np.int64) - 1
    share = high_product(inverse((total << room) - (1 << 31)), each[below])
    made = shifted_right(share, SUM_BITS - room + 31 - 8) - 128
    return np.asarray(np.clip(made, -128, 127), np.int8)


def mean_factor(factor: float, count: int) -> tuple[int, int]:
    """Mantissa and exponent of a factor divided by a count, which are kept within 31 bits."""
    mantissa, exponent = (int(v) for v in multiplier(factor))
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    return (mantissa << shift) // count, exponent - shift


def _summed(op: Op, arrays: Sequence[Array]) -> tuple[Array, int]:
    """Sums of stored integers along the axes, and of how many each is."""
    x, axes = op.args["inputs"][0], tuple(int(a) for a in np.atleast_1d(arrays[1]))
    count = int(np.prod([x.bound[a] for a in axes]))
    return np.asarray(arrays[0].astype(np.int64).sum(axis=axes, keepdims=bool(op.args["keep_dims"]))), count


def mean(op: Op, arrays: Sequence[Array]) -> Array:
    """Along axes, of integers without their zero points."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    total, count = _summed(op, arrays)
    mantissa, exponent = mean_factor(float(np.float64(scale(x)) / np.float64(scale(out))), count)
    return stored(scaled(total - zero(x) * count, mantissa, exponent), out)


def sums(op: Op, arrays: Sequence[Array]) -> Array:
    """Along axes, in single precision; halves go away from zero."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    total, count = _summed(op, arrays)
    factor = scale(x) / scale(out)
    real = (total.astype(np.float32) * factor + np.float32(-zero(x)) * factor * np.float32(count)).astype(np.float64)
    return stored(np.copysign(np.floor(np.abs(real) + 0.5), real).astype(np.int64), out)


def nearest_factor(op: Op, count: int) -> tuple[np.float32, np.float32]:
    """What sums of stored integers are multiplied by, and what is added then, in single precision."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    factor = scale(x) / scale(out)
    if op.kind.endswith("MEAN"):
        factor = factor * (np.float32(1) / np.float32(count))
    return factor, np.float32(zero(out)) - np.float32(zero(x) * count) * factor


def nearest_sums(op: Op, arrays: Sequence[Array]) -> Array:
    """Sums or means as XNNPACK rounds them: both zero points are added before, and halves go to even."""
    total, count = _summed(op, arrays)
    factor, start = nearest_factor(op, count)
    return np.asarray(np.clip(np.rint(total.astype(np.float32) * factor + start), -128, 127), np.int8)
