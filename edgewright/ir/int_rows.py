"""Softmax and norms of rows of integers: sums are exact, so their order does not matter.

What is made of the sums is in the precision that each function says, every operation rounded by itself.
"""

from __future__ import annotations

import math

import numpy as np

from edgewright.ir.float_scale import scale_array
from edgewright.ir.graph import Array, Value

_F32, _F64 = np.float32, np.float64
_BITS = 24  # of an exponential: whole numbers so large are exact in single precision
LN2 = math.log(2)
SQRT2 = math.sqrt(2)
ATANH_SERIES = [1 / n for n in range(19, 0, -2)]  # of the inverse hyperbolic tangent, the highest power first


def exp_table(x: Value, length: int) -> Array:
    """The exponential for each step below a row's largest element, as whole numbers whose sums have 31 bits."""
    assert x.q is not None
    bits = max(1, min(_BITS, 31 - length.bit_length()))
    steps = np.arange(1 << 8 * x.q.dtype.itemsize, dtype=_F64)
    return np.rint(np.exp(-steps * scale_array(x)) * 2.0**bits).astype(np.int64)


def softmax(x: Value, stored: Array, axis: int) -> Array:
    """Shares of exponentials, in single precision."""
    each = exp_table(x, stored.shape[axis])[_below(stored, axis)]
    return np.asarray(each.astype(_F32) / each.sum(axis=axis, keepdims=True).astype(_F32))


def _below(stored: Array, axis: int) -> Array:
    wide = stored.astype(np.int64)
    return np.asarray(wide.max(axis=axis, keepdims=True) - wide)


def log_softmax(x: Value, stored: Array, axis: int) -> Array:
    """Steps below the largest, and the logarithm of the exponentials' sum: in double precision, then in single."""
    below, table = _below(stored, axis), exp_table(x, stored.shape[axis])
    total = table[below].sum(axis=axis, keepdims=True)
    made = below.astype(_F64) * scale_array(x) + (log_int(total) - log_of_table_unit(table))
    return np.asarray(-made).astype(_F32)


def log_of_table_unit(table: Array) -> float:
    """The logarithm of what stands for 1 in a table of exponentials: a power of two."""
    return (int(table[0]).bit_length() - 1) * LN2


def log_int(whole: Array) -> Array:
    """Of whole numbers from 1: by a power of two, and a series of what is left, in this order of operations."""
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
    """Rows (the last dimension) by their deviation, or by the root of their mean square; ``centred``: whole numbers.

    Mean and deviation are in double precision, of exact sums; elements are brought to them in single.
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
    """Whether 64 bits are enough for a row's squares, times their count."""
    assert x.q is not None
    reach = max(abs(int(n) - int(np.asarray(x.q.zero_point))) for n in (x.q.qmin, x.q.qmax))
    return 2 * math.prod((reach, reach, count, count)) < 1 << 63
