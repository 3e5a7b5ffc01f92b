"""Requantization arithmetic of TFLite's reference kernels.

A real factor becomes a 31-bit mantissa and a power of two (``QuantizeMultiplier``). Most kernels then apply
``MultiplyByQuantizedMultiplier``, which rounds twice: ``SaturatingRoundingDoublingHighMul`` rounds the 64-bit product
to its high 32 bits (half up), and ``RoundingDivideByPOT`` rounds the remaining right shift (half away from zero).
The result can differ by one from the correctly rounded product: with a shift of 1, an exact result of 0.49 is 0.98
before the shift and rounds to 1, and then 0.5 rounds to 1.
The double rounding is what 32-bit NEON offers (``SQRDMULH``, then ``SRSHL`` with a correction) and devices follow it,
so the references must as well. Kernels built for a single rounding add one offset to the 64-bit product instead:
``multiply_by_quantized_once``. Sources: ``tensorflow/lite/kernels/internal/common.h`` and gemmlowp's ``fixedpoint.h``;
Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2018),
section 2.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value

_HALF = 1 << 30
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1


def quantize_multiplier(factor: Any) -> tuple[Array, Array]:
    """31-bit mantissas and exponents of real factors: ``factor = mantissa * 2**(exponent - 31)``."""
    real = np.asarray(factor, np.float64)
    mantissa, exponent = np.frexp(real)
    fixed = np.floor(np.abs(mantissa) * 2.0**31 + 0.5).astype(np.int64) * np.sign(mantissa).astype(np.int64)
    carried = np.abs(fixed) == 1 << 31
    fixed, exponent = np.where(carried, fixed >> 1, fixed), exponent + carried
    underflow = exponent < -31
    return np.where(underflow, 0, fixed), np.where(underflow, 0, exponent).astype(np.int64)


def doubling_high_mul(a: Array, b: Any) -> Array:
    """High 32 bits of ``2 * a * b``, rounded half up (``SaturatingRoundingDoublingHighMul``)."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, _HALF, 1 - _HALF)
    return np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))


def rounding_divide_by_pot(x: Array, bits: Any) -> Array:
    """``x / 2**bits``, rounded half away from zero (``RoundingDivideByPOT``)."""
    bits = np.asarray(bits, np.int64)
    mask = (np.int64(1) << bits) - 1
    remainder = x & mask
    return (x >> bits) + (remainder > (mask >> 1) + (x < 0))


def multiply_by_quantized(x: Array, mantissa: Any, exponent: Any) -> Array:
    """``x * mantissa * 2**(exponent - 31)``, rounded twice (``MultiplyByQuantizedMultiplier``)."""
    exponent = np.asarray(exponent, np.int64)
    shifted = np.clip(np.asarray(x, np.int64) << np.maximum(exponent, 0), _LOW, _HIGH)
    return rounding_divide_by_pot(doubling_high_mul(shifted, mantissa), np.maximum(-exponent, 0))


def rescale(x: Array, factor: Any) -> Array:
    """An integer times a real factor (a scalar, or one per channel of the last dimension), rounded twice."""
    return multiply_by_quantized(x, *quantize_multiplier(factor))


def multiply_by_quantized_once(x: Array, mantissa: Any, exponent: Any) -> Array:
    """``x * mantissa * 2**(exponent - 31)``, rounded once, half away from zero."""
    product = np.asarray(x, np.int64) * np.asarray(mantissa, np.int64)
    shift = 31 - np.asarray(exponent, np.int64)
    magnitude, right = np.abs(product), np.clip(shift, 1, 62)
    rounded = np.where(shift < 63, (magnitude + (np.int64(1) << (right - 1))) >> right, 0)
    return np.where(shift <= 0, product << np.maximum(-shift, 0), np.where(product < 0, -rounded, rounded))


def rescale_once(x: Array, factor: float) -> Array:
    """An integer times a real factor, rounded once."""
    return multiply_by_quantized_once(x, *quantize_multiplier(factor))


# ------------------------------------------------------------------------------------------------------ parameters


def scale(value: Value) -> np.float32:
    """A tensor's scale, in float32 as stored in files."""
    assert value.q is not None
    return np.float32(np.asarray(value.q.scale))


def scales(value: Value) -> Array:
    assert value.q is not None
    return np.asarray(value.q.scale, np.float32)


def zero_point(value: Value) -> int:
    assert value.q is not None
    return int(np.asarray(value.q.zero_point).reshape(-1)[0])


def subtract_zero_point(value: Value, array: Array) -> Array:
    """Stored integers minus the zero point."""
    return np.asarray(array, np.int64) - zero_point(value)


def quantize_output(rescaled: Array, out: Value, low: int = -128, high: int = 127) -> Array:
    """Add the output's zero point and clamp to int8 (or narrower limits)."""
    return np.asarray(np.clip(rescaled + zero_point(out), low, high), np.int8)
