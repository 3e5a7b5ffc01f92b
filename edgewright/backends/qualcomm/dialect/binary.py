"""References of addition, subtraction and multiplication. Integers are rounded once, half up.

8-bit sums use the fixed point of ``ir/numerics.py``, as the residual add of a convolution does, and 16-bit sums that of
``int16.py``; everything else is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import from_float, subtract_zero_point, to_float
from edgewright.backends.qualcomm.dialect.elementwise import BINARY
from edgewright.backends.qualcomm.dialect.int16 import int16_sum_params
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.requant_scale import all_8bit

_F32 = np.float32
_SIGNS = {"Add": 1, "Subtract": -1}
ADD_SUB_MUL = (*_SIGNS, "Multiply")


def _fixed_point_params(op: Op) -> tuple[QParams, QParams, QParams] | None:
    """Quantization parameters of a sum or difference of 8-bit tensors whose factors fit in 32 bits."""
    (a, b), out = op.args["inputs"], op.outputs[0]
    if out is None or a.q is None or b.q is None or out.q is None or op.kind.endswith("Multiply"):
        return None
    if not all_8bit(a, b, out) or any(q.axis is not None for q in (a.q, b.q, out.q)):
        return None
    return (a.q, b.q, out.q) if 1 <= QNN.sum_factors((a.q, b.q), out.q)[2] <= 30 else None


def is_fixed_point(op: Op) -> bool:
    return _fixed_point_params(op) is not None


def add_sub_mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    name, fixed_params = op.kind.partition("ElementWise")[2], _fixed_point_params(op)
    if fixed_params is not None:
        x, y = (subtract_zero_point(array, q, np.int64) for q, array in zip(fixed_params, arrays, strict=False))
        return QNN.sum(x, _SIGNS[name] * y, fixed_params[:2], fixed_params[2], None)
    int16 = int16_sum_params(op)
    if int16 is not None:
        return int16.apply(*arrays)
    result = BINARY[name]({}, to_float(a, arrays[0]), to_float(b, arrays[1]))
    return from_float(out, result) if out.q is None else quantize_half_up(result, out.q)


def quantize_half_up(numbers: Array, q: QParams) -> Array:
    """Quantize, rounding half up and saturating."""
    with np.errstate(all="ignore"):
        steps = np.floor(numbers.astype(_F32) * (_F32(1) / as_float32(q.scale)) + _F32(0.5)) + as_float32(q.zero_point)
    return np.clip(np.nan_to_num(steps), q.qmin, q.qmax).astype(q.dtype)


def inverse_scale(value: Value) -> np.float32:
    """The reciprocal of the scale."""
    assert value.q is not None
    return _F32(_F32(1) / as_float32(value.q.scale))
