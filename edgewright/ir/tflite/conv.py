"""Convolutions, matrix products, pools and resizing. Images are NHWC; all padding was made real before.

Products give their accumulators; ``twice`` and ``once`` bring those to the result's scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.tflite.rounding import centred, scale, scales, stored, times, times_once

Reference = Callable[[Op, Sequence[Array]], Array]
_EXACT = np.float64  # sums of products of bytes are exact in it, and as fast as the machine's matrix product


def _patches(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int] = (1, 1)) -> Array:
    """A view of every window, ``(n, oh, ow, kh, kw, c)``."""
    n, h, w, c = x.shape
    oh = (h - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (w - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
    sn, sh, sw, sc = x.strides
    steps = (sn, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1], sc)
    return np.lib.stride_tricks.as_strided(x, (n, oh, ow, *kernel, c), steps, writeable=False)


def _pair(op: Op, name: str) -> list[int]:
    """Height and width of what the file has as two fields."""
    heights = {"stride": ("stride_h", "stride_w"), "dilation": ("dilation_h", "dilation_w")}
    return [int(op.args[field]) for field in heights[name]]


def factor_of(x: Value, weight: Value, out: Value) -> Array:
    """Of an accumulator, by channel: computed in double precision from single-precision scales."""
    return np.float64(scale(x)) * scales(weight).astype(np.float64) / np.float64(scale(out))


def pair_factor(x: Value, weight: Value, out: Value) -> Array:
    """The same, but the product of the two scales is rounded to single precision."""
    return np.asarray(np.float64(scale(x) * scale(weight)) / np.float64(scale(out)))


def conv_2d(op: Op, arrays: Sequence[Array]) -> Array:
    """Filters are OHWI."""
    x = op.args["inputs"][0]
    image, filters, bias = centred(x, arrays[0]).astype(_EXACT), arrays[1].astype(_EXACT), arrays[2]
    windows = _patches(image, filters.shape[1:3], _pair(op, "stride"), _pair(op, "dilation"))
    rows = windows.reshape(-1, int(np.prod(filters.shape[1:])))
    acc = (rows @ filters.reshape(len(filters), -1).T).astype(np.int64) + bias
    return acc.reshape(*windows.shape[:3], len(filters))


def depthwise_conv_2d(op: Op, arrays: Sequence[Array]) -> Array:
    """Filters are 1HWC, one for each channel."""
    filters = arrays[1][0].astype(_EXACT)
    image = centred(op.args["inputs"][0], arrays[0]).astype(_EXACT)
    windows = _patches(image, filters.shape[:2], _pair(op, "stride"), _pair(op, "dilation"))
    return np.einsum("nhwklc,klc->nhwc", windows, filters).astype(np.int64) + arrays[2]


def transpose_conv(op: Op, arrays: Sequence[Array]) -> Array:
    """Operands: the result's shape, filters OHWI, the image, biases. What reaches past the shape is cut off."""
    out = _result(op)
    filters, image = arrays[1].astype(np.int64), centred(op.args["inputs"][2], arrays[2])
    (n, h, w, _), (sy, sx) = image.shape, _pair(op, "stride")
    count, kh, kw, _ = filters.shape
    acc = np.zeros((n, (h - 1) * sy + kh, (w - 1) * sx + kw, count), np.int64)
    for i in range(kh):
        for j in range(kw):
            part = acc[:, i : i + (h - 1) * sy + 1 : sy, j : j + (w - 1) * sx + 1 : sx]
            part += (image.astype(_EXACT) @ filters[:, i, j].T.astype(_EXACT)).astype(np.int64)
    return acc[:, : out.bound[1], : out.bound[2]] + arrays[3]


def fully_connected(op: Op, arrays: Sequence[Array]) -> Array:
    """Rows times a matrix of (output, input)."""
    rows = centred(op.args["inputs"][0], arrays[0]).astype(_EXACT)
    return (rows @ arrays[1].astype(_EXACT).T).astype(np.int64) + arrays[2]


def batch_matmul(op: Op, arrays: Sequence[Array]) -> Array:
    left, right = (centred(v, array).astype(_EXACT) for v, array in zip(op.args["inputs"], arrays, strict=True))
    return (left @ right).astype(np.int64)


def operands(op: Op) -> tuple[Value, Value]:
    """The two tensors whose product an accumulator is a sum of."""
    given = op.args["inputs"]
    return (given[2], given[1]) if op.kind.endswith("TRANSPOSE_CONV") else (given[0], given[1])


def twice(accumulate: Reference, factor: Callable[[Value, Value, Value], Array] = factor_of) -> Reference:
    """An accumulator brought to the result's scale by two roundings."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        out = _result(op)
        return stored(times(accumulate(op, arrays), factor(*operands(op), out)), out)

    return function


def once(accumulate: Reference) -> Reference:
    """The same by one rounding: matrix products do it so, unlike convolutions."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        out = _result(op)
        return stored(times_once(accumulate(op, arrays), float(factor_of(*operands(op), out).reshape(-1)[0])), out)

    return function


PAIRS = twice(batch_matmul, pair_factor)  # of two computed matrices


# ----------------------------------------------------------------------------------------------------------- pools


def _windows(op: Op, image: Array) -> Array:
    return _patches(image, (int(op.args["filter_h"]), int(op.args["filter_w"])), _pair(op, "stride"))


def max_pool_2d(op: Op, arrays: Sequence[Array]) -> Array:
    return np.asarray(_windows(op, arrays[0]).max(axis=(3, 4)))


def average_pool_2d(op: Op, arrays: Sequence[Array]) -> Array:
    """Halves go away from zero, of stored integers: zero points agree."""
    windows = _windows(op, arrays[0].astype(np.int64))
    count = windows.shape[3] * windows.shape[4]
    return np.asarray(_rounded(windows.sum(axis=(3, 4)), count), np.int8)


def _rounded(total: Array, count: int) -> Array:
    return np.where(total > 0, (total + count // 2) // count, -((-total + count // 2) // count))


# -------------------------------------------------------------------------------------------------------- resizing


def resize_bilinear(op: Op, arrays: Sequence[Array]) -> Array:
    """Positions in units of 1/1024 of a pixel; halves go away from zero."""
    image, aligned, half = arrays[0].astype(np.int64), op.args["align_corners"], op.args["half_pixel_centers"]
    rows, columns = (taps(image.shape[1 + a], _result(op).bound[1 + a], aligned, half) for a in (0, 1))
    total = np.zeros(_result(op).bound, np.int64)
    for y, wy in rows:
        for x, wx in columns:
            total += image[:, y][:, :, x] * wy[None, :, None, None] * wx[None, None, :, None]
    return np.asarray(_rounded(total, 1 << 20), np.int8)


def taps(size: int, wanted: int, aligned: bool, half: bool) -> list[tuple[Array, Array]]:
    """The two pixels that each result lies between, and their weights."""
    step = ((size << 10) + wanted // 2) // wanted
    if aligned and wanted > 1:
        step = (((size - 1) << 10) + (wanted - 1) // 2) // (wanted - 1)
    at = np.arange(wanted, dtype=np.int64) * step + (step // 2 - 512 if half else 0)
    low = np.maximum(np.where(at >= 0, at >> 10, -((-at) >> 10)), 0)
    high = np.minimum((at + 1023) >> 10, size - 1)
    return [(low, 1024 - (at - (low << 10))), (high, at - (low << 10))]


def resize_nearest_neighbor(op: Op, arrays: Sequence[Array]) -> Array:
    image, sizes = arrays[0], _result(op).bound[1:3]
    rows, columns = (np.arange(n) * image.shape[1 + a] // n for a, n in enumerate(sizes))
    return np.ascontiguousarray(image[:, rows][:, :, columns])


def _result(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out
