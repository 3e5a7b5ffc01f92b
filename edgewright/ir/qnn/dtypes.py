"""How the HTP holds numbers, and what it rounds: integers by their scale, real numbers in 16 bits.

Arithmetic is in single precision or better; what is stored is rounded once: halves to even, and up where two tensors
are added, subtracted or multiplied, as in the emulator. Qualcomm does not publish more of its rounding, so results may
differ from the emulator's by a step of the last place. All is said in terms that machine code can do bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import QNN, broadcast_params
from edgewright.ir.qnn.int16 import WordScaling, word_scaling

_F32 = np.float32
LARGEST = _F32(np.finfo(np.float16).max)


def half(array: Array) -> Array:
    """Real numbers as 16 bits hold them."""
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(_F32)


def centred(array: Array, q: QParams, dtype: Any = _F32) -> Array:
    """Integers without their zero point."""
    return array.astype(dtype) - broadcast_params(np.asarray(q.zero_point, dtype), q.axis, array.ndim)


def scales(q: QParams, array: Array) -> Array:
    """Scales, shaped to broadcast; those of blocks are for so many input channels of each output channel, which is
    last."""
    given = np.asarray(q.scale, _F32)
    if q.block is None:
        return broadcast_params(given, q.axis, array.ndim)
    return np.repeat(given.reshape(array.shape[-1], -1).T, q.block, axis=0)


def real(value: Value, array: Array) -> Array:
    """What stored elements stand for. Integers and truth values that were never real numbers stay what they are."""
    q = value.q
    if q is not None:
        zero = 0 if q.block is not None else broadcast_params(np.asarray(q.zero_point, _F32), q.axis, array.ndim)
        return (array.astype(_F32) - zero) * scales(q, array)
    return half(array) if array.dtype.kind == "f" else array


def stored(value: Value, numbers: Array) -> Array:
    """Real numbers as a tensor holds them."""
    if value.q is not None:
        return quantized(numbers, value.q)
    assert value.dtype is not None
    if value.dtype.kind == "f":
        return half(numbers).astype(value.dtype)
    return np.asarray(numbers).astype(value.dtype)


def quantized(numbers: Array, q: QParams) -> Array:
    """The nearest integers, within their range."""
    with np.errstate(all="ignore"):
        return QNN.quantize(np.asarray(numbers, _F32), q)


def converted(value: Value, array: Array, out: Value) -> Array:
    """Elements of one tensor as another holds them; the same integers where both hold them alike, and real numbers in
    half precision, moved or computed: Qualcomm documents that the HTP runs float graphs in float16."""
    if value.q is None and out.q is None:
        return half(array).astype(array.dtype) if array.dtype.kind == "f" else array
    if value.q is None or out.q is None or value.q == out.q:
        return array if out.q is None or value.q is not None else stored(out, array)
    words = word_scaling(value, out)
    return quantized(real(value, array), out.q) if words is None else words.apply(array)


def limits_of(op: Op) -> tuple[np.float32, np.float32]:
    """What ``Relu``, ``Relu6`` and ``ReluMinMax`` keep real numbers within."""
    if op.kind.endswith("ReluMinMax"):
        return _F32(op.args["min_value"]), _F32(op.args["max_value"])
    return _F32(0), _F32(6 if op.kind.endswith("Relu6") else np.inf)


def word_limits(op: Op) -> tuple[WordScaling, int, int] | None:
    """Of 16 bits, limits are those of a change of scale: how it is made, and the least and largest integer."""
    (x,), out = op.args["inputs"], op.outputs[0]
    words = None if out is None else word_scaling(x, out)
    low, high = limits_of(op)
    if words is None or out is None or out.q is None or not low <= high:
        return None
    least, most = (int(quantized(np.asarray(n), out.q)) for n in (low, high))
    return words, least, most


def limited(op: Op, arrays: Sequence[Array]) -> Array:
    """``Relu``, ``Relu6``, ``ReluMinMax``."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    words = word_limits(op)
    if words is None:
        return stored(out, np.clip(real(x, arrays[0]), *limits_of(op)))
    return np.clip(words[0].apply(arrays[0]), np.uint16(words[1]), np.uint16(words[2]))


def convert(op: Op, arrays: Sequence[Array]) -> Array:
    """``Convert``."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    return stored(out, real(x, arrays[0])) if x.q is None or out.q is None else converted(x, arrays[0], out)
