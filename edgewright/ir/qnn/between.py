"""Resizing between pixels of integers: sums by whole weights, as the HTP's vector unit has them.

Columns of bytes have weights in 240ths (255 times 240 has 16 bits), and those of 16 bits in 32768ths, as rows always
have. Sums are exact, and rounded to the first result's unit; halves go up. What has another scale than the operand is
converted from the rounded integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.qnn import images
from edgewright.ir.qnn.values import converted, real, stored

Axis = tuple[Array, Array]  # for each result the places of two elements, and their weights: [2, results]
ALONG = 15  # bits of the weights along a row
DOWN = 240  # what two weights of bytes, one above the other, sum up to
_TYPES = (np.dtype(np.uint8), np.dtype(np.uint16))


def in_integers(op: Op) -> bool:
    """Of images without signs and of one scale, which the result has too or is converted to."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    centred = bool(op.args["align_corners"]) != bool(op.args["half_pixel_centers"])
    return centred and all(v.q is not None and v.q.axis is None and v.q.dtype in _TYPES for v in (x, out))


def _axis(size: int, count: int, corners: bool, whole: int) -> Axis:
    ratio = ((size - 1) / (count - 1) if count > 1 else 0.0) if corners else size / count
    positions, step, half = np.arange(count, dtype=np.float32), np.float32(ratio), np.float32(0.5)
    at = positions * step if corners else np.maximum((positions + half) * step - half, np.float32(0))
    lower = np.clip(at, 0, size - 1).astype(np.int64)
    part = np.floor(np.clip(at - lower, 0, 1).astype(np.float64) * whole + 0.5).astype(np.int64)
    return np.stack((lower, np.minimum(lower + 1, size - 1))), np.stack((whole - part, part))


def axes_of(op: Op) -> tuple[Axis, Axis]:
    """Of rows, which lie below each other, and of columns."""
    (x,), out, corners = op.args["inputs"], op.outputs[0], bool(op.args["align_corners"])
    assert out is not None and x.q is not None
    down = DOWN if x.q.dtype.itemsize == 1 else 1 << ALONG
    return _axis(x.bound[1], out.bound[1], corners, down), _axis(x.bound[2], out.bound[2], corners, 1 << ALONG)


def bilinear(op: Op, arrays: Sequence[Array]) -> Array:
    """``ResizeBilinear``."""
    (x,), out = op.args["inputs"], op.outputs[0]
    assert out is not None
    if not in_integers(op):
        return stored(out, images.bilinear({**op.args, "shape": out.bound}, real(x, arrays[0])))
    assert x.q is not None
    total = arrays[0].astype(np.int32 if x.q.dtype.itemsize == 1 else np.int64)
    for dim, (places, weights) in zip((1, 2), axes_of(op), strict=True):
        shape = (-1,) + (1,) * (3 - dim)
        first, second = (
            np.take(total, p, dim) * w.astype(total.dtype).reshape(shape) for p, w in zip(places, weights, strict=True)
        )
        total = first + second
    return converted(x, _rounded(total, x).astype(x.q.dtype), out)


def _rounded(total: Array, x: Value) -> Array:
    assert x.q is not None
    if x.q.dtype.itemsize > 1:
        return (total + (1 << 2 * ALONG - 1)) >> 2 * ALONG
    return np.asarray(((total + (1 << ALONG - 1) >> ALONG) + DOWN // 2) // DOWN)
