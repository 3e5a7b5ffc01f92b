"""References of unary functions, which the engine compiles to tables, and parameters of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.numerics import quantize_output, scale, subtract_zero_point, zero_point
from edgewright.ir.fixed_point import (
    doubling_high_mul,
    multiply_by_quantized,
    quantize_multiplier,
    rescale,
    rounding_divide_by_pot,
)
from edgewright.ir.graph import Array, Op, Value

Function = Callable[[Op, Sequence[Array]], Array]
_F32 = np.float32
_MIN_FACTOR, _MAX_FACTOR = _F32(1 / 256), _F32(128)  # factors of leaky ReLU that XNNPACK supports
LEFT_SHIFT = 20  # bits that the operands of a sum are shifted by before rescaling, as in TFLite's ADD


def _operands(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def product_factor(a: Value, b: Value, out: Value) -> np.float32:
    """Requantization factor of a product, in float32."""
    return np.float32(scale(a) * scale(b) / scale(out))


RELU_RANGES = {"RELU": (0.0, math.inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0), "RELU_0_TO_1": (0.0, 1.0)}


def clamp_limits(out: Value, low: float, high: float) -> tuple[int, int]:
    """Clamp limits as stored integers."""

    def quantize(limit: float) -> int:
        quantized = float(_F32(limit) / scale(out))
        return zero_point(out) + int(math.copysign(math.floor(abs(quantized) + 0.5), quantized))

    lower = max(-128, quantize(low)) if math.isfinite(low) else -128
    return lower, min(127, quantize(high)) if math.isfinite(high) else 127


def leaky_relu(op: Op, arrays: Sequence[Array]) -> Array:
    (x,), out = _operands(op)
    centered = subtract_zero_point(x, arrays[0])
    slope = scale(x) * _F32(op.args["alpha"]) / scale(out)
    return quantize_output(
        np.where(centered >= 0, rescale(centered, scale(x) / scale(out)), rescale(centered, slope)), out
    )


def leaky_relu_xnnpack(op: Op, arrays: Sequence[Array]) -> Array:
    """LEAKY_RELU of LiteRT's XNNPACK delegate: factors in units of 1/256, rounds half up. XNNPACK rejects smaller
    factors, so the reference kernel runs."""
    (x,), out = _operands(op)
    positive = scale(x) / scale(out)
    real_factors = (positive, positive * _F32(op.args["alpha"]))
    if not all(_MIN_FACTOR <= abs(f) <= _MAX_FACTOR for f in real_factors):
        return leaky_relu(op, arrays)
    factors = [int(np.rint(_F32(-256) * f)) for f in real_factors]
    negated = -subtract_zero_point(x, arrays[0]) << 7
    product = np.where(negated <= 0, negated * factors[0], negated * factors[1])
    return quantize_output((product + (1 << 14)) >> 15, out)


def absolute(op: Op, arrays: Sequence[Array]) -> Array:
    (x,), out = _operands(op)
    magnitude = np.abs(subtract_zero_point(x, arrays[0]))
    return quantize_output(magnitude if scale(x) == scale(out) else rescale(magnitude, scale(x) / scale(out)), out)


def lookup(function: Callable[[Array], Array]) -> Function:
    """A unary function evaluated in float32 for all 256 stored values, then applied as a lookup table."""

    def apply(op: Op, arrays: Sequence[Array]) -> Array:
        (x,), out = _operands(op)
        codes = np.arange(-128, 128, dtype=np.int64)
        with np.errstate(all="ignore"):
            real = function(scale(x) * (codes - zero_point(x)).astype(_F32)) * (_F32(1) / scale(out))
            rounded = np.where(real >= 0, np.floor(real + _F32(0.5)), np.ceil(real - _F32(0.5)))
        rounded = np.clip(np.nan_to_num(rounded, nan=0.0), -(2.0**31), 2.0**31)
        return quantize_output(rounded.astype(np.int64), out)[arrays[0].astype(np.int64) + 128]

    return apply


# ---------------------------------------------------------------------------------------------------- hard swish

_INT16_BITS = 15


def _int16_multiplier(factor: float) -> tuple[int, int]:
    """A factor as a 15-bit mantissa and an exponent (``DownScaleInt32ToInt16Multiplier`` of TFLite)."""
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    return min((mantissa + (1 << 15)) >> 16, (1 << _INT16_BITS) - 1), exponent


def _int16_doubling_high_mul(a: Array, b: Any) -> Array:
    """High half of ``2 * a * b`` of 16-bit integers, rounded half up (``SaturatingRoundingDoublingHighMul``)."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.where(nudged >= 0, nudged >> _INT16_BITS, -((-nudged) >> _INT16_BITS))


def hard_swish(op: Op, arrays: Sequence[Array]) -> Array:
    """``x * relu6(x + 3) / 6`` in 16-bit fixed point, as TFLite's reference ``HardSwish``."""
    (x,), out = _operands(op)
    shifted = subtract_zero_point(x, arrays[0]) << 7
    shifted_scale = _F32(1 / 128) * scale(x)
    gain_multiplier, gain_exponent = _int16_multiplier(float(shifted_scale / scale(out)))
    gate_multiplier, gate_exponent = _int16_multiplier(float(shifted_scale / _F32(3.0 / 32768.0)))
    low, high = -(1 << _INT16_BITS), (1 << _INT16_BITS) - 1
    gated = np.clip(shifted << max(gate_exponent - 1, 0), low, high)
    gated = _int16_doubling_high_mul(gated, gate_multiplier)
    gated = np.clip(gated << 1, low, high) if gate_exponent > 0 else rounding_divide_by_pot(gated, -gate_exponent)
    gated = (gated + (1 << _INT16_BITS)) >> 1
    product = gated * _int16_doubling_high_mul(shifted, gain_multiplier)
    result = np.where(product >= 0, product >> _INT16_BITS, -((-product) >> _INT16_BITS))
    return quantize_output(
        rounding_divide_by_pot(result, -gain_exponent) if gain_exponent < 0 else result << gain_exponent, out
    )


# ------------------------------------------------------------------------------------------------- inverse square root


def rsqrt(op: Op, arrays: Sequence[Array]) -> Array:
    """A table over the input's distance from its zero point, with 20 fractional bits; zero maps to the maximum. The
    backend's rules exclude negative inputs."""
    (x,), out = _operands(op)
    factor = _F32(1.0) / (np.sqrt(scale(x)) * scale(out))
    mantissa, exponent = (int(v) for v in quantize_multiplier(float(factor)))
    table = np.full(256, 127, np.int64)
    for steps in range(1, 256):
        root, shift = inverse_sqrt_multiplier(steps)
        shifted = multiply_by_quantized(np.asarray(1), root, shift + LEFT_SHIFT)
        table[steps] = min(127, int(multiply_by_quantized(shifted, mantissa, exponent - LEFT_SHIFT)) + zero_point(out))
    return np.asarray(np.clip(table, -128, 127)[np.maximum(subtract_zero_point(x, arrays[0]), 0)], np.int8)


def inverse_sqrt_multiplier(value: int) -> tuple[int, int]:
    """``1 / sqrt(value)`` as a 31-bit mantissa and an exponent, by Newton's iteration in fixed point
    (``GetInvSqrtQuantizedMultiplierExp`` of TFLite)."""
    if value <= 1:
        return (1 << 31) - 1, 0
    exponent = 11
    while value >= 1 << 29:
        value, exponent = value // 4, exponent + 1
    leading_zeros = (32 - value.bit_length()) - 1
    shift_pairs = leading_zeros // 2 - 1
    exponent -= shift_pairs
    value <<= 2 * shift_pairs
    fixed = value >> 1  # with 3 integer bits
    x = 1 << 28  # one
    half_three = (1 << 28) + (1 << 27)
    half = _doubling_high_mul(fixed, 1 << 30)
    for _ in range(5):
        cube = _saturating_shift_left(_doubling_high_mul(_doubling_high_mul(x, x), x), 6)
        x = _saturating_shift_left(_doubling_high_mul(half_three, x) - _doubling_high_mul(half, cube), 3)
    root = _doubling_high_mul(x, 1518500250)  # sqrt(1/2) in Q0.31
    if exponent < 0:
        root, exponent = root << -exponent, 0
    return root, -exponent


def _doubling_high_mul(a: int, b: int) -> int:
    return int(doubling_high_mul(np.asarray(a), b))


def _saturating_shift_left(value: int, bits: int) -> int:
    """Shift left, saturating to int32."""
    return max(-(1 << 31), min((1 << 31) - 1, value << bits))
