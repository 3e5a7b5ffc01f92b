"""Fixed-point addition and rescaling of 16-bit tensors.

The arithmetic follows Hexagon NN, the operator library for the same vector unit that Qualcomm published under a BSD
license: 16-bit factors for two operands, one factor with 18 fraction bits for one; rounding half up. Here 32768 is
subtracted from all integers first, which changes no result and keeps sums within 32 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgewright.ir.graph import Op, QParams, Value
from edgewright.ir.int_arithmetic import IntArithmetic, RangedInt
from edgewright.ir.numerics import as_float32

MIDPOINT = 1 << 15
_UINT16 = np.dtype(np.uint16)
_FACTOR_BITS, _GAIN_BITS = 15, 18  # fraction bits of the factors for equal scales
_GUARD = np.float32(1.00004)  # keeps a ratio just below a power of two from rounding up to 17 bits
_FRACTION_BITS = 3  # fraction bits before the last rounding


@dataclass(frozen=True)
class Int16Sum:
    """``((a * a_factor + b * b_factor >> 1) + offset >> shift) + 32768``; ``complement`` replaces b with -1 - b."""

    a_factor: int
    b_factor: int
    offset: int
    shift: int
    complement: bool

    def apply(self, i: IntArithmetic, a: RangedInt, b: RangedInt) -> RangedInt:
        a, b = i.plus(a, -MIDPOINT), i.plus(b, -MIDPOINT)
        b = i.sub(i.constant(-1), b) if self.complement else b
        total = i.add(i.mul(a, i.constant(self.a_factor)), i.mul(b, i.constant(self.b_factor)))
        return _saturate(i, i.shift_right(i.plus(i.shift_right(total, 1), self.offset), self.shift))


@dataclass(frozen=True)
class Int16Rescale:
    """``((x * gain + 2^14 >> 15) + offset >> 3) + 32768``."""

    gain: int
    offset: int

    def apply(self, i: IntArithmetic, x: RangedInt) -> RangedInt:
        scaled = i.shift_right(i.plus(i.mul(i.plus(x, -MIDPOINT), i.constant(self.gain)), 1 << 14), 15)
        return _saturate(i, i.shift_right(i.plus(scaled, self.offset), _FRACTION_BITS))


def _saturate(i: IntArithmetic, x: RangedInt) -> RangedInt:
    return i.plus(i.narrow(i.clamp(x, -MIDPOINT, MIDPOINT - 1)), MIDPOINT)


def _int16_params(*values: Value | None) -> list[QParams] | None:
    """Quantization parameters if all values are uint16 with the full range, else None."""
    params = [v.q for v in values if v is not None and v.q is not None]
    return params if len(params) == len(values) and all(map(_uses_full_uint16, params)) else None


def _uses_full_uint16(q: QParams) -> bool:
    full_range = q.dtype == _UINT16 and q.axis is None and (q.qmin, q.qmax) == (0, 2 * MIDPOINT - 1)
    return full_range and q.qmin <= _zero_point(q) <= q.qmax


def _ratio(q: QParams, out: QParams) -> np.float32:
    return np.float32(as_float32(q.scale) / as_float32(out.scale))


def _round_factor(ratio: np.float32, bits: int, maximum: int) -> int:
    return min(maximum, math.floor(math.ldexp(float(ratio), bits) + 0.5))


def _zero_point(q: QParams) -> int:
    return int(np.asarray(q.zero_point))


def int16_sum_params(op: Op) -> Int16Sum | None:
    """Parameters of a fixed-point sum or difference; None if tensors are not uint16 or scales differ too much."""
    (a, b), sums = op.args["inputs"], op.kind.endswith("Add")
    params = _int16_params(a, b, op.outputs[0]) if sums or op.kind.endswith("Subtract") else None
    if params is None:
        return None
    a_q, b_q, out = params
    ratios = [_ratio(q, out) for q in (a_q, b_q)]
    shift = _FACTOR_BITS - max(-1, int(np.frexp(_GUARD * max(ratios))[1])) if np.isfinite(ratios).all() else 0
    if not 2 <= shift <= _FACTOR_BITS + 1:
        return None
    a_factor, b_factor = (_round_factor(r, shift, MIDPOINT - 1) for r in ratios)
    zeros = (_zero_point(a_q), _zero_point(b_q) if sums else 2 * MIDPOINT - 1 - _zero_point(b_q))
    zero_sum = (zeros[0] * a_factor + zeros[1] * b_factor >> 1) - (MIDPOINT >> 1) * (a_factor + b_factor)
    offset = (_zero_point(out) - MIDPOINT << shift - 1) + (1 << shift - 2) - zero_sum
    return Int16Sum(a_factor, b_factor, offset, shift - 1, not sums)


def int16_rescale_params(x: Value, out: Value) -> Int16Rescale | None:
    """Parameters of a fixed-point rescale; None if the tensors are not uint16 or their scales differ too much."""
    params = _int16_params(x, out)
    if params is None:
        return None
    ratio = _ratio(*params)
    if not (np.isfinite(ratio) and ratio <= MIDPOINT >> 2):
        return None
    gain = _round_factor(ratio, _GAIN_BITS, (1 << 31) - 1)
    below = (_zero_point(params[0]) - MIDPOINT) * gain + (1 << 14) >> 15
    return Int16Rescale(gain, (_zero_point(params[1]) - MIDPOINT << _FRACTION_BITS) - below + (1 << _FRACTION_BITS - 1))
