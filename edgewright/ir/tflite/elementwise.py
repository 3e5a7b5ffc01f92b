"""Arithmetic, activations and functions of one element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.tflite.rounding import (
    centred,
    high_product,
    multiplier,
    scale,
    scaled,
    shifted_right,
    stored,
    times,
    zero,
)  # fmt: skip

Function = Callable[[Op, Sequence[Array]], Array]
_F32 = np.float32
ROOM = 20  # bits that operands of a sum are shifted by


def _ends(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def summed(sign: int) -> Function:
    """Both operands in units of twice the larger scale, with 20 more bits."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        given, out = _ends(op)
        unit = 2 * float(max(scale(v) for v in given))
        parts = [times(centred(v, a) << ROOM, float(scale(v)) / unit) for v, a in zip(given, arrays, strict=True)]
        return stored(times(parts[0] + sign * parts[1], unit / (2.0**ROOM * float(scale(out)))), out)

    return function


def mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = _ends(op)
    return stored(times(centred(a, arrays[0]) * centred(b, arrays[1]), product_factor(a, b, out)), out)


def product_factor(a: Value, b: Value, out: Value) -> np.float32:
    """Computed in single precision."""
    return np.float32(scale(a) * scale(b) / scale(out))


RELUS = {"RELU": (0.0, math.inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0), "RELU_0_TO_1": (0.0, 1.0)}


def relu(low: float, high: float) -> Function:
    """Between real limits; the factor is a quotient in single precision."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (x,), out = _ends(op)
        made = times(centred(x, arrays[0]), scale(x) / scale(out))
        return stored(made, out, *limits(out, low, high))

    return function


def limits(out: Value, low: float, high: float) -> tuple[int, int]:
    """Real limits as stored integers."""

    def steps(limit: float) -> int:
        real = float(_F32(limit) / scale(out))
        return zero(out) + int(math.copysign(math.floor(abs(real) + 0.5), real))

    least = max(-128, steps(low)) if math.isfinite(low) else -128
    return least, min(127, steps(high)) if math.isfinite(high) else 127


def leaky_relu(op: Op, arrays: Sequence[Array]) -> Array:
    (x,), out = _ends(op)
    given = centred(x, arrays[0])
    slope = scale(x) * _F32(op.args["alpha"]) / scale(out)
    return stored(np.where(given >= 0, times(given, scale(x) / scale(out)), times(given, slope)), out)


def prelu(op: Op, arrays: Sequence[Array]) -> Array:
    (x, slope), out = _ends(op)
    given, slopes = centred(x, arrays[0]), centred(slope, arrays[1])
    below = times(given * slopes, product_factor(x, slope, out))
    return stored(np.where(given >= 0, times(given, scale(x) / scale(out)), below), out)


def absolute(op: Op, arrays: Sequence[Array]) -> Array:
    (x,), out = _ends(op)
    size = np.abs(centred(x, arrays[0]))
    return stored(size if scale(x) == scale(out) else times(size, scale(x) / scale(out)), out)


def extreme(function: Any) -> Function:
    """Of stored integers: parameters agree."""
    return lambda op, arrays: np.asarray(function(arrays[0], arrays[1]))


def by_table(function: Callable[[Array], Array]) -> Function:
    """A function of real numbers, in single precision, looked up by the stored byte."""

    def looked_up(op: Op, arrays: Sequence[Array]) -> Array:
        (x,), out = _ends(op)
        every = np.arange(-128, 128, dtype=np.int64)
        with np.errstate(all="ignore"):
            real = function(scale(x) * (every - zero(x)).astype(_F32)) * (_F32(1) / scale(out))
            whole = np.where(real >= 0, np.floor(real + _F32(0.5)), np.ceil(real - _F32(0.5)))
        whole = np.clip(np.nan_to_num(whole, nan=0.0), -(2.0**31), 2.0**31)
        return stored(whole.astype(np.int64), out)[arrays[0].astype(np.int64) + 128]

    return looked_up


# ---------------------------------------------------------------------------------------------------- hard swish

_SHORT = 15


def _short(factor: float) -> tuple[int, int]:
    """A factor as an integer of 15 bits and an exponent."""
    mantissa, exponent = (int(v) for v in multiplier(factor))
    return min((mantissa + (1 << 15)) >> 16, (1 << _SHORT) - 1), exponent


def _short_product(a: Array, b: Any) -> Array:
    """The upper half of ``2 * a * b`` of 16-bit integers; halves go up."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.where(nudged >= 0, nudged >> _SHORT, -((-nudged) >> _SHORT))


def hard_swish(op: Op, arrays: Sequence[Array]) -> Array:
    """``x * relu6(x + 3) / 6`` in 16-bit fixed point."""
    (x,), out = _ends(op)
    fine = centred(x, arrays[0]) << 7
    unit = _F32(1 / 128) * scale(x)
    gain, gain_exponent = _short(float(unit / scale(out)))
    gate, gate_exponent = _short(float(unit / _F32(3.0 / 32768.0)))
    low, high = -(1 << _SHORT), (1 << _SHORT) - 1
    opened = np.clip(fine << max(gate_exponent - 1, 0), low, high)
    opened = _short_product(opened, gate)
    opened = np.clip(opened << 1, low, high) if gate_exponent > 0 else shifted_right(opened, -gate_exponent)
    opened = (opened + (1 << _SHORT)) >> 1
    product = opened * _short_product(fine, gain)
    whole = np.where(product >= 0, product >> _SHORT, -((-product) >> _SHORT))
    return stored(shifted_right(whole, -gain_exponent) if gain_exponent < 0 else whole << gain_exponent, out)


# ------------------------------------------------------------------------------------------------- reciprocal roots


def rsqrt(op: Op, arrays: Sequence[Array]) -> Array:
    """Of steps above zero, in 20-bit fixed point; zero gives the largest. Rules keep negative numbers away."""
    (x,), out = _ends(op)
    factor = _F32(1.0) / (np.sqrt(scale(x)) * scale(out))
    mantissa, exponent = (int(v) for v in multiplier(float(factor)))
    made = np.full(256, 127, np.int64)
    for steps in range(1, 256):
        root, shift = inverse_root(steps)
        fine = scaled(np.asarray(1), root, shift + ROOM)
        made[steps] = min(127, int(scaled(fine, mantissa, exponent - ROOM)) + zero(out))
    return np.asarray(np.clip(made, -128, 127)[np.maximum(centred(x, arrays[0]), 0)], np.int8)


def inverse_root(value: int) -> tuple[int, int]:
    """``1 / sqrt(value)`` as a mantissa of 31 bits and an exponent, by Newton's iteration in fixed point."""
    if value <= 1:
        return (1 << 31) - 1, 0
    exponent = 11
    while value >= 1 << 29:
        value, exponent = value // 4, exponent + 1
    spare = (32 - value.bit_length()) - 1
    pairs = spare // 2 - 1
    exponent -= pairs
    value <<= 2 * pairs
    fixed = value >> 1  # with 3 integer bits
    x = 1 << 28  # one
    half_three = (1 << 28) + (1 << 27)
    half = _wide_product(fixed, 1 << 30)
    for _ in range(5):
        cube = _rescaled(_wide_product(_wide_product(x, x), x), 6)
        x = _rescaled(_wide_product(half_three, x) - _wide_product(half, cube), 3)
    root = _wide_product(x, 1518500250)  # the root of a half, of 31 bits
    if exponent < 0:
        root, exponent = root << -exponent, 0
    return root, -exponent


def _wide_product(a: int, b: int) -> int:
    return int(high_product(np.asarray(a), b))


def _rescaled(value: int, bits: int) -> int:
    """More bits behind the point, saturating."""
    return max(-(1 << 31), min((1 << 31) - 1, value << bits))
