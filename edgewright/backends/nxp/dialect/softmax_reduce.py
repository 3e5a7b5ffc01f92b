"""TFLite's softmax, mean and sum, in the fixed-point arithmetic of ``ir/fixed_point.py``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.nxp.dialect.numerics import quantize_output, scale, zero_point
from edgewright.ir.fixed_point import (
    DIFF_BITS,
    SUM_BITS,
    doubling_high_mul,
    exp_on_negative_values,
    multiply_by_quantized,
    one_over_one_plus_x,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from edgewright.ir.graph import Array, Op


def softmax_exp_table(op: Op) -> tuple[Array, Array]:
    """``exp`` for each of the 256 possible differences to the row maximum, and the same in the format of the sum; 0
    beyond the range of the fixed-point input (TFLite's ``diff_min``)."""
    x = op.args["inputs"][0]
    factor = min(float(np.float64(op.args["beta"]) * np.float64(scale(x)) * (1 << (31 - DIFF_BITS))), 2.0**31 - 1)
    mantissa, exponent = (int(v) for v in quantize_multiplier(factor))
    max_steps = int(np.floor(((1 << DIFF_BITS) - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0**exponent))
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
