"""Sums and changes of scale of 16-bit integers, in fixed point.

The rules are those of Hexagon NN, the library of operators for the same vector unit whose source Qualcomm gave out
under a BSD licence: factors of 16 bits for two operands, one of 18 bits behind the point for one; halves go up. They
are said of integers less 32768, which changes no result and keeps sums within 32 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import as_float32

MIDDLE = 1 << 15
_WORD = np.dtype(np.uint16)
_FACTOR, _GAIN = 15, 18  # bits behind the point, where scales are alike
_GUARD = np.float32(1.00004)  # a ratio just below a power of two would be rounded to 16 bits and a sign
_KEPT = 3  # bits of a product that the last rounding sees


@dataclass(frozen=True)
class WordSum:
    """``((a * first + b * second >> 1) + added >> shift) + 32768``, where ``turned`` has -1 - b in place of b."""

    first: int
    second: int
    added: int
    shift: int
    turned: bool

    def apply(self, a: Array, b: Array) -> Array:
        x, y = a.astype(np.int64) - MIDDLE, b.astype(np.int64) - MIDDLE
        y = -1 - y if self.turned else y
        total = (x * self.first + y * self.second >> 1) + self.added >> self.shift
        return _stored(total)


@dataclass(frozen=True)
class WordScaling:
    """``((x * gain + 2^14 >> 15) + added >> 3) + 32768``."""

    gain: int
    added: int

    def apply(self, x: Array) -> Array:
        centred = x.astype(np.int64) - MIDDLE
        return _stored((centred * self.gain + (1 << 14) >> 15) + self.added >> _KEPT)


def _stored(total: Array) -> Array:
    return np.clip(total + MIDDLE, 0, 2 * MIDDLE - 1).astype(_WORD)


def _words(*values: Value | None) -> list[QParams] | None:
    """The scales of tensors that are all of 16 bits without a sign, and use them all."""
    found = [v.q for v in values if v is not None and v.q is not None]
    return found if len(found) == len(values) and all(map(_is_word, found)) else None


def _is_word(q: QParams) -> bool:
    whole = q.dtype == _WORD and q.axis is None and (q.qmin, q.qmax) == (0, 2 * MIDDLE - 1)
    return whole and q.qmin <= _zero(q) <= q.qmax


def _ratio(q: QParams, out: QParams) -> np.float32:
    return np.float32(as_float32(q.scale) / as_float32(out.scale))


def _nearest(ratio: np.float32, bits: int, most: int) -> int:
    return min(most, math.floor(math.ldexp(float(ratio), bits) + 0.5))


def _zero(q: QParams) -> int:
    return int(np.asarray(q.zero_point))


def word_sum(op: Op) -> WordSum | None:
    """How a sum or difference is computed; None if it is not of such tensors, or their scales are too far apart."""
    (a, b), sums = op.args["inputs"], op.kind.endswith("Add")
    found = _words(a, b, op.outputs[0]) if sums or op.kind.endswith("Subtract") else None
    if found is None:
        return None
    first, second, out = found
    ratios = [_ratio(q, out) for q in (first, second)]
    shift = _FACTOR - max(-1, int(np.frexp(_GUARD * max(ratios))[1])) if np.isfinite(ratios).all() else 0
    if not 2 <= shift <= _FACTOR + 1:
        return None
    left, right = (_nearest(r, shift, MIDDLE - 1) for r in ratios)
    zeros = (_zero(first), _zero(second) if sums else 2 * MIDDLE - 1 - _zero(second))
    without = (zeros[0] * left + zeros[1] * right >> 1) - (MIDDLE >> 1) * (left + right)
    added = (_zero(out) - MIDDLE << shift - 1) + (1 << shift - 2) - without
    return WordSum(left, right, added, shift - 1, not sums)


def word_scaling(x: Value, out: Value) -> WordScaling | None:
    """How integers of one scale become those of another; None if they are not such, or the scales too far apart."""
    found = _words(x, out)
    if found is None:
        return None
    ratio = _ratio(*found)
    if not (np.isfinite(ratio) and ratio <= MIDDLE >> 2):
        return None
    gain = _nearest(ratio, _GAIN, (1 << 31) - 1)
    below = (_zero(found[0]) - MIDDLE) * gain + (1 << 14) >> 15
    return WordScaling(gain, (_zero(found[1]) - MIDDLE << _KEPT) - below + (1 << _KEPT - 1))
