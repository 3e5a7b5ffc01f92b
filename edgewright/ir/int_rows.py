"""Softmax and normalization of quantized rows. Integer sums are exact, so results do not depend on summation order;
each function documents the precision of the floating-point arithmetic on the sums."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.graph import Array, Value
from edgewright.ir.requant_scale import scale_array

_F32, _F64 = np.float32, np.float64
_BITS = 24  # of an exponential: integers up to 2**24 are exact in float32
LN2 = math.log(2)
SQRT2 = math.sqrt(2)
ATANH_SERIES = [1 / n for n in range(19, 0, -2)]  # coefficients of atanh(x) / x in x**2, highest power first


def exp_table(x: Value, length: int) -> Array:
    """exp(-step * scale) per quantization step below the row maximum, as integers whose row sums fit 31 bits."""
    assert x.q is not None
    bits = max(1, min(_BITS, 31 - length.bit_length()))
    steps = np.arange(1 << 8 * x.q.dtype.itemsize, dtype=_F64)
    return np.rint(np.exp(-steps * scale_array(x)) * 2.0**bits).astype(np.int64)


def softmax(x: Value, raw: Array, axis: int) -> Array:
    """Softmax, in float32."""
    exps = exp_table(x, raw.shape[axis])[_steps_below_max(raw, axis)]
    return np.asarray(exps.astype(_F32) / exps.sum(axis=axis, keepdims=True).astype(_F32))


def _steps_below_max(raw: Array, axis: int) -> Array:
    wide = raw.astype(np.int64)
    return np.asarray(wide.max(axis=axis, keepdims=True) - wide)


def log_softmax(x: Value, raw: Array, axis: int) -> Array:
    """Log-softmax, computed in float64 and rounded to float32."""
    steps, table = _steps_below_max(raw, axis), exp_table(x, raw.shape[axis])
    total = table[steps].sum(axis=axis, keepdims=True)
    negated = steps.astype(_F64) * scale_array(x) + (log_int(total) - log_of_table_unit(table))
    return np.asarray(-negated).astype(_F32)


def log_of_table_unit(table: Array) -> float:
    """The logarithm of the table entry that represents 1, a power of two."""
    return (int(table[0]).bit_length() - 1) * LN2


def log_int(integers: Array) -> Array:
    """Natural logarithm of positive integers: exponent, plus an atanh series of the mantissa, in a fixed order."""
    exponent = np.frexp(integers.astype(_F64))[1] - 1
    mantissa = np.ldexp(integers.astype(_F64), -exponent)
    above = mantissa > SQRT2
    mantissa, exponent = np.where(above, mantissa * 0.5, mantissa), exponent + above
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square, total = ratio * ratio, np.full(ratio.shape, ATANH_SERIES[0])
    for term in ATANH_SERIES[1:]:
        total = total * square + term
    return np.asarray(exponent.astype(_F64) * LN2 + (ratio * 2.0) * total)


def normalize_rows(x: Value, centered: Array, epsilon: float, center: bool) -> Array:
    """Layer norm (``center``) or RMS norm of rows (the last dimension); ``centered``: integers without zero point.

    Mean and deviation are float64, from exact sums; elements are normalized in float32.
    """
    integers, count, scale = centered.astype(np.int64), centered.shape[-1], scale_array(x)
    total = integers.sum(axis=-1, keepdims=True) if center else np.zeros((*integers.shape[:-1], 1), np.int64)
    squares = (integers * integers).sum(axis=-1, keepdims=True)
    if not norm_fits_int64(x, count):
        total, squares = total.astype(object), squares.astype(object)
    variance = (squares * count - total * total).astype(_F64) / _F64(count * count)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance * (scale * scale) + _F64(epsilon))
    mean = (total.astype(_F64) / _F64(count)).astype(_F32)
    return np.asarray((integers.astype(_F32) - mean) * factor.astype(_F32))


def norm_fits_int64(x: Value, count: int) -> bool:
    """Whether a row's sum of squares times its length fits int64."""
    assert x.q is not None
    reach = max(abs(int(n) - int(np.asarray(x.q.zero_point))) for n in (x.q.qmin, x.q.qmax))
    return 2 * math.prod((reach, reach, count, count)) < 1 << 63
