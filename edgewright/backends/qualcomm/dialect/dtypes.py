"""Storage and rounding of the HTP: quantized integers, and floating point in fp16.

Operators compute in float32 or better and round once on store: half to even, and half up in addition, subtraction and
multiplication of two tensors, as the emulator does. Qualcomm does not publish more of its rounding, so results may
differ from the emulator's by one quantization step.
"""

from __future__ import annotations

import numpy as np

from edgewright.backends.qualcomm.dialect.int16 import Int16Rescale, int16_rescale_params
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import broadcast_params

_F32 = np.float32


def round_to_fp16(array: Array) -> Array:
    """Round to fp16, stored as float32."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(_F32)


def broadcast_scales(q: QParams, array: Array) -> Array:
    """Scales, shaped to broadcast. Blockwise scales are expanded to one per input channel (dimension -2) and output
    channel (dimension -1)."""
    scale = np.asarray(q.scale, _F32)
    if q.block is None:
        return broadcast_params(scale, q.axis, array.ndim)
    return np.repeat(scale.reshape(array.shape[-1], -1).T, q.block, axis=0)


def to_float(value: Value, array: Array) -> Array:
    """Dequantize, or round floating point to fp16. Plain integers and booleans are returned unchanged."""
    q = value.q
    if q is not None:
        zero = 0 if q.block is not None else broadcast_params(np.asarray(q.zero_point, _F32), q.axis, array.ndim)
        return (array.astype(_F32) - zero) * broadcast_scales(q, array)
    return round_to_fp16(array) if array.dtype.kind == "f" else array


def from_float(value: Value, numbers: Array) -> Array:
    """Convert numbers to the storage of ``value``: quantize, or round to fp16."""
    if value.q is not None:
        return quantize_array(numbers, value.q)
    assert value.dtype is not None
    if value.dtype.kind == "f":
        return round_to_fp16(numbers).astype(value.dtype)
    return np.asarray(numbers).astype(value.dtype)


def quantize_array(numbers: Array, q: QParams) -> Array:
    """Quantize, rounding half to even and saturating."""
    with np.errstate(all="ignore"):
        return QNN.quantize(np.asarray(numbers, _F32), q)


def clamp_limits(op: Op) -> tuple[np.float32, np.float32]:
    """Lower and upper limit of ``Relu``, ``Relu6`` and ``ReluMinMax``."""
    if op.kind.endswith("ReluMinMax"):
        return _F32(op.args["min_value"]), _F32(op.args["max_value"])
    return _F32(0), _F32(6 if op.kind.endswith("Relu6") else np.inf)


def int16_clamp_params(op: Op) -> tuple[Int16Rescale, int, int] | None:
    """For 16-bit tensors: the rescale, and the quantized limits that are applied after it."""
    (x,), out = op.args["inputs"], op.outputs[0]
    rescale = None if out is None else int16_rescale_params(x, out)
    low, high = clamp_limits(op)
    if rescale is None or out is None or out.q is None or not low <= high:
        return None
    minimum, maximum = (int(quantize_array(np.asarray(n), out.q)) for n in (low, high))
    return rescale, minimum, maximum
