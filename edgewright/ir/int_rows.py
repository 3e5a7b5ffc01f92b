"""Softmax and normalization of quantized rows. Integer sums are exact, so results do not depend on summation order;
each function documents the precision of the floating-point arithmetic on the sums."""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.float_scale import scale_array
from edgewright.ir.graph import Array, Value

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


def softmax(x: Value, stored: Array, axis: int) -> Array:
    """Softmax, in float32."""
    each = exp_table(x, stored.shape[axis])[_below(stored, axis)]
    return np.asarray(each.astype(_F32) / each.sum(axis=axis, keepdims=True).astype(_F32))


def _below(stored: Array, axis: int) -> Array:
    wide = stored.astype(np.int64)
    return np.asarray(wide.max(axis=axis, keepdims=True) - wide)


def log_softmax(x: Value, stored: Array, axis: int) -> Array:
    """Log-softmax, computed in float64 and rounded to float32."""
    below, table = _below(stored, axis), exp_table(x, stored.shape[axis])
    total = table[below].sum(axis=axis, keepdims=True)
    made = below.astype(_F64) * scale_array(x) + (log_int(total) - log_of_table_unit(table))
    return np.asarray(-made).astype(_F32)


def log_of_table_unit(table: Array) -> float:
    """The logarithm of the table entry that represents 1, a power of two."""
    return (int(table[0]).bit_length() - 1) * LN2


def log_int(whole: Array) -> Array:
    """Natural logarithm of positive integers: exponent, plus an atanh series of the mantissa, in a fixed order."""
    exponent = np.frexp(whole.astype(_F64))[1] - 1
    rest = np.ldexp(whole.astype(_F64), -exponent)
    above = rest > SQRT2
    rest, exponent = np.where(above, rest * 0.5, rest), exponent + above
    part = (rest - 1.0) / (rest + 1.0)
    square, total = part * part, np.full(part.shape, ATANH_SERIES[0])
    for term in ATANH_SERIES[1:]:
        total = total * square + term
    return np.asarray(exponent.astype(_F64) * LN2 + (part * 2.0) * total)


def normalize_rows(x: Value, centred: Array, epsilon: float, centre: bool) -> Array:
    """Layer norm (``centre``) or RMS norm of rows (the last dimension); ``centred``: integers without zero point.

    Mean and deviation are float64, from exact sums; elements are normalized in float32.
    """
    whole, count, scale = centred.astype(np.int64), centred.shape[-1], scale_array(x)
    total = whole.sum(axis=-1, keepdims=True) if centre else np.zeros((*whole.shape[:-1], 1), np.int64)
    squares = (whole * whole).sum(axis=-1, keepdims=True)
    spread = (squares * count - total * total).astype(_F64) / _F64(count * count)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(spread * (scale * scale) + _F64(epsilon))
    mean = (total.astype(_F64) / _F64(count)).astype(_F32)
    return np.asarray((whole.astype(_F32) - mean) * factor.astype(_F32))


def norm_fits_int64(x: Value, count: int) -> bool:
    """Whether a row's sum of squares times its length fits int64."""
    assert x.q is not None
    reach = max(abs(int(n) - int(np.asarray(x.q.zero_point))) for n in (x.q.qmin, x.q.qmax))
    return 2 * math.prod((reach, reach, count, count)) < 1 << 63
