"""Rounding of TFLite's reference kernels: real factors as integers of 31 bits and a shift."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value

_HALF = 1 << 30
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1


def multiplier(factor: Any) -> tuple[Array, Array]:
    """Mantissas of 31 bits and exponents of real factors: ``factor = mantissa * 2**(exponent - 31)``."""
    real = np.asarray(factor, np.float64)
    mantissa, exponent = np.frexp(real)
    stored = np.floor(np.abs(mantissa) * 2.0**31 + 0.5).astype(np.int64) * np.sign(mantissa).astype(np.int64)
    carried = np.abs(stored) == 1 << 31
    stored, exponent = np.where(carried, stored >> 1, stored), exponent + carried
    lost = exponent < -31
    return np.where(lost, 0, stored), np.where(lost, 0, exponent).astype(np.int64)


def high_product(a: Array, b: Any) -> Array:
    """The upper half of ``2 * a * b``; halves go up."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, _HALF, 1 - _HALF)
    return np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))


def shifted_right(x: Array, bits: Any) -> Array:
    """``x / 2**bits``; halves go away from zero."""
    bits = np.asarray(bits, np.int64)
    mask = (np.int64(1) << bits) - 1
    rest = x & mask
    return (x >> bits) + (rest > (mask >> 1) + (x < 0))


def scaled(x: Array, mantissa: Any, exponent: Any) -> Array:
    """``x * mantissa * 2**(exponent - 31)``, rounded twice: to the upper half, then by the shift."""
    exponent = np.asarray(exponent, np.int64)
    left = np.clip(np.asarray(x, np.int64) << np.maximum(exponent, 0), _LOW, _HIGH)
    return shifted_right(high_product(left, mantissa), np.maximum(-exponent, 0))


def times(x: Array, factor: Any) -> Array:
    """An integer times a real factor (or one for each of the last dimension), rounded twice."""
    return scaled(x, *multiplier(factor))


def scaled_once(x: Array, mantissa: Any, exponent: Any) -> Array:
    """``x * mantissa * 2**(exponent - 31)``, rounded once; halves go away from zero."""
    product = np.asarray(x, np.int64) * np.asarray(mantissa, np.int64)
    shift = 31 - np.asarray(exponent, np.int64)
    size, right = np.abs(product), np.clip(shift, 1, 62)
    rounded = np.where(shift < 63, (size + (np.int64(1) << (right - 1))) >> right, 0)
    return np.where(shift <= 0, product << np.maximum(-shift, 0), np.where(product < 0, -rounded, rounded))


def times_once(x: Array, factor: float) -> Array:
    """An integer times a real factor, rounded once."""
    return scaled_once(x, *multiplier(factor))


# ------------------------------------------------------------------------------------------------------ parameters


def scale(value: Value) -> np.float32:
    """A tensor's scale, in single precision as files hold it."""
    assert value.q is not None
    return np.float32(np.asarray(value.q.scale))


def scales(value: Value) -> Array:
    assert value.q is not None
    return np.asarray(value.q.scale, np.float32)


def zero(value: Value) -> int:
    assert value.q is not None
    return int(np.asarray(value.q.zero_point).reshape(-1)[0])


def centred(value: Value, array: Array) -> Array:
    """Stored integers without their zero point."""
    return np.asarray(array, np.int64) - zero(value)


def stored(made: Array, out: Value, low: int = -128, high: int = 127) -> Array:
    """Integers in units of a result, with its zero point, within 8 bits (or narrower limits)."""
    return np.asarray(np.clip(made + zero(out), low, high), np.int8)
