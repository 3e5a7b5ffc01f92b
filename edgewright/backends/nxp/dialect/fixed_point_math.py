"""Fixed-point exponential, reciprocal and reductions, as in TFLite's softmax, mean and sum.

The functions reproduce gemmlowp's ``fixedpoint/fixedpoint.h``, bit for bit. A raw int32 with ``n`` integer bits
represents ``raw * 2**(n - 31)`` (gemmlowp's ``FixedPoint<int32, n>``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.nxp.dialect.rounding import (
    doubling_high_mul,
    multiply_by_quantized,
    quantize_multiplier,
    quantize_output,
    rounding_divide_by_pot,
    scale,
    zero_point,
)
from edgewright.ir.graph import Array, Op

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_DIFF_BITS = 5  # integer bits of differences to the row maximum
SUM_BITS = 12  # integer bits of a row's sum
NEWTON_START, NEWTON_STEPS = (1515870810, -1010580540), 3  # 48/17 and -32/17 in Q2.29; iterations
# exp(-1/4), exp(-1/2), exp(-1), … exp(-16) in Q0.31
_EXP_OF_BIT = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def _saturate(x: Array) -> Array:
    return np.clip(x, _LOW, _HIGH)


def exp_on_negative_values(a: Array, bits: int = _DIFF_BITS) -> Array:
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


def softmax_exp_table(op: Op) -> tuple[Array, Array]:
    """``exp`` for each of the 256 possible differences to the row maximum, and the same in the format of the sum; 0
    beyond the range of the fixed-point input (TFLite's ``diff_min``)."""
    x = op.args["inputs"][0]
    factor = min(float(np.float64(op.args["beta"]) * np.float64(scale(x)) * (1 << (31 - _DIFF_BITS))), 2.0**31 - 1)
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    max_steps = int(np.floor(((1 << _DIFF_BITS) - 1) * 2.0 ** (31 - _DIFF_BITS) / 2.0**exponent))
    steps = np.arange(256, dtype=np.int64)
    in_range = steps <= max_steps
    exps = np.where(
        in_range, exp_on_negative_values(multiply_by_quantized(np.where(in_range, -steps, 0), mantissa, exponent)), 0
    )
    return exps, rounding_divide_by_pot(exps, SUM_BITS)


def softmax(op: Op, arrays: Sequence[Array]) -> Array:
    """Over the last dimension; the output scale is 1/256."""
    x = arrays[0].astype(np.int64)
    exps, summands = softmax_exp_table(op)
    diff = x.max(axis=-1, keepdims=True) - x
    total = summands[diff].sum(axis=-1, keepdims=True)
    headroom = 32 - np.floor(np.log2(total)).astype(np.int64) - 1
    ratio = doubling_high_mul(one_over_one_plus_x((total << headroom) - (1 << 31)), exps[diff])
    result = rounding_divide_by_pot(ratio, SUM_BITS - headroom + 31 - 8) - 128
    return np.asarray(np.clip(result, -128, 127), np.int8)


def mean_multiplier(factor: float, count: int) -> tuple[int, int]:
    """Mantissa and exponent of ``factor / count``, normalized to 31 bits before the integer division."""
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    return (mantissa << shift) // count, exponent - shift


def _reduce_stored(op: Op, arrays: Sequence[Array]) -> tuple[Array, int]:
    """Sums of stored integers over the axes, and the number of summands."""
    x, axes = op.args["inputs"][0], tuple(int(a) for a in np.atleast_1d(arrays[1]))
    count = int(np.prod([x.bound[a] for a in axes]))
    return np.asarray(arrays[0].astype(np.int64).sum(axis=axes, keepdims=bool(op.args["keep_dims"]))), count


def reduce_mean(op: Op, arrays: Sequence[Array]) -> Array:
    """MEAN, with double rounding."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    total, count = _reduce_stored(op, arrays)
    mantissa, exponent = mean_multiplier(float(np.float64(scale(x)) / np.float64(scale(out))), count)
    return quantize_output(multiply_by_quantized(total - zero_point(x) * count, mantissa, exponent), out)


def reduce_sum(op: Op, arrays: Sequence[Array]) -> Array:
    """SUM, computed in float32; rounds half away from zero."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    total, count = _reduce_stored(op, arrays)
    factor = scale(x) / scale(out)
    scaled = (total.astype(np.float32) * factor + np.float32(-zero_point(x)) * factor * np.float32(count)).astype(
        np.float64
    )
    return quantize_output(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int64), out)


def single_rounding_factor(op: Op, count: int) -> tuple[np.float32, np.float32]:
    """Factor and offset, in float32, that map a sum of stored integers to the output."""
    (x, _), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    factor = scale(x) / scale(out)
    if op.kind.endswith("MEAN"):
        factor = factor * (np.float32(1) / np.float32(count))
    return factor, np.float32(zero_point(out)) - np.float32(zero_point(x) * count) * factor


def reduce_single_rounding(op: Op, arrays: Sequence[Array]) -> Array:
    """SUM or MEAN as XNNPACK rounds: adds both zero points first, then rounds once, half to even."""
    total, count = _reduce_stored(op, arrays)
    factor, offset = single_rounding_factor(op, count)
    return np.asarray(np.clip(np.rint(total.astype(np.float32) * factor + offset), -128, 127), np.int8)
