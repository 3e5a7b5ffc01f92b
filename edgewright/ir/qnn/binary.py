"""References of addition, subtraction and multiplication. Integers are rounded once, half up.

8-bit sums use the fixed point of ``ir/numerics.py``, as the residual add of a convolution does, and 16-bit sums that of
``int16.py``; everything else is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.float_scale import all_8bit
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import QNN, as_float32
from edgewright.ir.qnn.dtypes import centred, real, stored
from edgewright.ir.qnn.elementwise import BINARY
from edgewright.ir.qnn.int16 import word_sum

_F32 = np.float32
_SIGNS = {"Add": 1, "Subtract": -1}
PAIRS = (*_SIGNS, "Multiply")


def _fixed(op: Op) -> tuple[QParams, QParams, QParams] | None:
    """The scales of a sum or difference of bytes whose factors have room in 32 bits."""
    (a, b), out = op.args["inputs"], op.outputs[0]
    if out is None or a.q is None or b.q is None or out.q is None or op.kind.endswith("Multiply"):
        return None
    if not all_8bit(a, b, out) or any(q.axis is not None for q in (a.q, b.q, out.q)):
        return None
    return (a.q, b.q, out.q) if 1 <= QNN.sum_factors((a.q, b.q), out.q)[2] <= 30 else None


def in_fixed_point(op: Op) -> bool:
    return _fixed(op) is not None


def paired(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    name, fixed = op.kind.partition("ElementWise")[2], _fixed(op)
    if fixed is not None:
        x, y = (centred(array, q, np.int64) for q, array in zip(fixed, arrays, strict=False))
        return QNN.sum(x, _SIGNS[name] * y, fixed[:2], fixed[2], None)
    words = word_sum(op)
    if words is not None:
        return words.apply(*arrays)
    made = BINARY[name]({}, real(a, arrays[0]), real(b, arrays[1]))
    return stored(out, made) if out.q is None else rounded_up(made, out.q)


def rounded_up(numbers: Array, q: QParams) -> Array:
    """The nearest integers, within their range; of two, the upper one."""
    with np.errstate(all="ignore"):
        steps = np.floor(numbers.astype(_F32) * (_F32(1) / as_float32(q.scale)) + _F32(0.5)) + as_float32(q.zero_point)
    return np.clip(np.nan_to_num(steps), q.qmin, q.qmax).astype(q.dtype)


def inverse(value: Value) -> np.float32:
    """What real numbers are multiplied by to be stored."""
    assert value.q is not None
    return _F32(_F32(1) / as_float32(value.q.scale))
