"""Fixed-point arithmetic of integer inference: rescaling, exponential and reciprocal, as gemmlowp defines them.

A real factor becomes a 31-bit mantissa and a power of two (``quantize_multiplier``). ``multiply_by_quantized`` then
rounds twice: ``doubling_high_mul`` rounds the 64-bit product to its high 32 bits (half up), and
``rounding_divide_by_pot`` rounds the remaining right shift (half away from zero). The result can differ by one from the
correctly rounded product: with a shift of 1, an exact result of 0.49 is 0.98 before the shift and rounds to 1, and then
0.5 rounds to 1. The double rounding is what 32-bit NEON offers (``SQRDMULH``, then ``SRSHL`` with a correction) and
devices follow it, so references must as well. ``multiply_by_quantized_once`` and ``apply_scale`` round the 64-bit
product once.

Sources: gemmlowp's ``fixedpoint/fixedpoint.h``; Jacob et al., "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference" (2018), section 2.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array

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


def apply_scale(value: Any, multiplier: Any, shift: Any, double: bool) -> Any:
    """``value * multiplier >> shift``, rounded half up; ``double`` rounds at bit 31 first, away from zero, for shifts
    above 31. Values may have 48 bits."""
    rounding = np.int64(1) << (shift - 1)
    if double:
        extra = np.where(value >= 0, np.int64(1) << 30, -(np.int64(1) << 30))
        rounding = rounding + np.where(shift > 31, extra, 0)
    if np.abs(value).max(initial=0) < 1 << 31:
        return (value * multiplier + rounding) >> shift
    wide = np.asarray(value).astype(object) * np.asarray(multiplier).astype(object)  # 48 bits times 32
    return ((wide + np.asarray(rounding).astype(object)) >> np.asarray(shift).astype(object)).astype(np.int64)


# ---------------------------------------------------------------------------------------------- exponential, reciprocal

# A raw int32 with ``n`` integer bits represents ``raw * 2**(n - 31)`` (gemmlowp's ``FixedPoint<int32, n>``).
DIFF_BITS = 5  # integer bits of a softmax's differences to the row maximum
SUM_BITS = 12  # integer bits of a row's sum
NEWTON_START, NEWTON_STEPS = (1515870810, -1010580540), 3  # 48/17 and -32/17 in Q2.29; iterations
# exp(-1/4), exp(-1/2), exp(-1), … exp(-16) in Q0.31
_EXP_OF_BIT = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _saturate(x: Array) -> Array:
    return np.clip(x, _LOW, _HIGH)


def exp_on_negative_values(a: Array, bits: int = DIFF_BITS) -> Array:
    """``exp`` for ``a <= 0`` with ``bits`` integer bits; the result has none.

    Splits ``-a`` into a remainder below 1/4, for which a polynomial suffices, and a multiple of 1/4, whose set bits
    select factors of a table: ``exp(-1/4 * sum of 2**i) = product of exp(-2**i / 4)``.
    """
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    remainder = (a & (quarter - 1)) - quarter
    result = _exp_on_minus_quarter_to_0(_saturate(remainder << bits))
    for bit_index, factor in enumerate(_EXP_OF_BIT[: bits + 2]):
        bit = ((remainder - a) >> (fraction - 2 + bit_index)) & 1
        result = np.where(bit == 1, doubling_high_mul(result, factor), result)
    return np.where(a == 0, _HIGH, result)


def _exp_on_minus_quarter_to_0(a: Array) -> Array:
    """``exp`` on [-1/4, 0): Taylor polynomial around -1/8."""
    base = 1895147668
    x = a + (1 << 28)
    x2 = doubling_high_mul(x, x)
    x3, x4 = doubling_high_mul(x2, x), doubling_high_mul(x2, x2)
    third = doubling_high_mul(rounding_divide_by_pot(x4, 2) + x3, 715827883)
    return _saturate(base + doubling_high_mul(x + rounding_divide_by_pot(third + x2, 1), base))


def one_over_one_plus_x(a: Array) -> Array:
    """``1 / (1 + a)`` for ``a`` in [0, 1], by Newton-Raphson division from a linear first estimate."""
    half = (a + _HIGH + 1) >> 1
    x = NEWTON_START[0] + doubling_high_mul(half, NEWTON_START[1])
    for _ in range(NEWTON_STEPS):
        error = (1 << 29) - doubling_high_mul(half, x)
        x = x + _saturate(doubling_high_mul(x, error) << 2)
    return _saturate(x << 1)
