"""What TOSA's convolutions, pools and resizing mean, in exact integers (and in floating point). Images are NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array

# Products of integers are summed as float64: exact below 2**53, and as fast as the machine's matrix product.
_EXACT = np.float64


def _accumulator(array: Array) -> Any:
    if array.dtype.kind == "f":
        return np.float32
    return np.int64 if array.dtype.itemsize == 2 else np.int32  # 48 bits, or 32


def _patches(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """A view of every window, ``(n, oh, ow, kh, kw, c)``, of an image that is padded already."""
    n, h, w, c = x.shape
    oh = (h - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (w - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
    sn, sh, sw, sc = x.strides
    shape = (n, oh, ow, kernel[0], kernel[1], c)
    steps = (sn, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1], sc)
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def _padded(x: Array, pad: Sequence[int], value: float = 0) -> Array:
    top, bottom, left, right = pad
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is OHWI."""
    x = _padded(input.astype(_EXACT) - input_zp, pad)
    w = weight.astype(_EXACT) - weight_zp
    out, kh, kw, _ = w.shape
    windows = _patches(x, (kh, kw), stride, dilation)
    n, oh, ow = windows.shape[:3]
    made = windows.reshape(n * oh * ow, -1) @ w.reshape(out, -1).T + bias.astype(_EXACT)
    return made.reshape(n, oh, ow, out).astype(_accumulator(input))


def conv3d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``input`` is NDHWC, ``weight`` ODHWI: a sum of 2-D convolutions over the depth of the window."""
    x = np.pad(input.astype(_EXACT) - input_zp, ((0, 0), tuple(pad[0:2]), (0, 0), (0, 0), (0, 0)))
    w = weight.astype(_EXACT) - weight_zp
    depth = (x.shape[1] - (w.shape[1] - 1) * dilation[0] - 1) // stride[0] + 1
    slices = []
    for d in range(depth):
        total: Any = bias.astype(_EXACT)
        for k in range(w.shape[1]):
            plane = x[:, d * stride[0] + k * dilation[0]]
            total = total + conv2d(plane, w[:, k], np.zeros(1), 0, 0, pad[2:], stride[1:], dilation[1:]).astype(_EXACT)
        slices.append(total)
    return np.stack(slices, axis=1).astype(_accumulator(input))


def depthwise_conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is HWCM; output channel ``c * M + m``."""
    x = _padded(input.astype(_EXACT) - input_zp, pad)
    w = weight.astype(_EXACT) - weight_zp
    kh, kw, c, m = w.shape
    windows = _patches(x, (kh, kw), stride, dilation)
    n, oh, ow = windows.shape[:3]
    made = np.zeros((n, oh, ow, c, m), _EXACT)
    for y in range(kh):
        for z in range(kw):
            made += windows[:, :, :, y, z, :, None] * w[y, z]
    return (made.reshape(n, oh, ow, c * m) + bias.astype(_EXACT)).astype(_accumulator(input))


def transpose_conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, out_pad: Sequence[int],
    stride: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is OHWI. ``out_pad`` is added to the result's edges (negative: cut off)."""
    x, w = input.astype(_EXACT) - input_zp, weight.astype(_EXACT) - weight_zp
    n, h, wide, _ = x.shape
    out, kh, kw, _ = w.shape
    top, bottom, left, right = out_pad
    size = ((h - 1) * stride[0] + kh, (wide - 1) * stride[1] + kw)
    full = np.zeros((n, *size, out), _EXACT)
    for y in range(kh):
        for z in range(kw):
            rows = slice(y, y + (h - 1) * stride[0] + 1, stride[0])
            columns = slice(z, z + (wide - 1) * stride[1] + 1, stride[1])
            full[:, rows, columns] += x @ w[:, y, z].T
    grown = _padded(full, [max(p, 0) for p in out_pad])
    y0, x0 = max(-top, 0), max(-left, 0)
    cut = grown[:, y0 : grown.shape[1] - max(-bottom, 0), x0 : grown.shape[2] - max(-right, 0)]
    return (cut + bias.astype(_EXACT)).astype(_accumulator(input))


def matmul(a: Array, b: Array, a_zp: int, b_zp: int) -> Array:
    return ((a.astype(_EXACT) - a_zp) @ (b.astype(_EXACT) - b_zp)).astype(_accumulator(a))


def max_pool2d(input: Array, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> Array:
    lowest = -np.inf if input.dtype.kind == "f" else int(np.iinfo(input.dtype).min)
    windows = _patches(_padded(input, pad, lowest), kernel, stride, (1, 1))
    return np.ascontiguousarray(windows.max(axis=(3, 4)))


def avg_pool2d(
    input: Array, input_zp: int, output_zp: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> Array:
    """Padding is not counted; integers are divided by TOSA's reciprocal, rounding halves up."""
    x = _padded(input.astype(_EXACT) - input_zp, pad)
    inside = _padded(np.ones((1, *input.shape[1:3], 1)), pad)
    total = _patches(x, kernel, stride, (1, 1)).sum(axis=(3, 4))
    count = _patches(inside, kernel, stride, (1, 1)).sum(axis=(3, 4))
    if input.dtype.kind == "f":
        return (total / count).astype(input.dtype)
    multiplier, shift = reciprocals(count.astype(np.int64))
    scaled = (total.astype(np.int64) * multiplier + (np.int64(1) << (shift - 1))) >> shift
    limits = np.iinfo(input.dtype)
    return np.clip(scaled + output_zp, limits.min, limits.max).astype(input.dtype)


def reciprocals(count: Array) -> tuple[Array, Array]:
    """A multiplier and shift for 1/count, as TOSA defines them."""
    bits = np.frompyfunc(lambda n: (n - 1).bit_length(), 1, 1)(count.astype(object)).astype(np.int64)
    multiplier = ((np.int64(1) << 30) + 1) * (np.int64(1) << bits) // count
    return multiplier, 30 + bits


def resize(
    input: Array, scale: Sequence[int], offset: Sequence[int], border: Sequence[int], mode: str
) -> Array:  # fmt: skip
    """``scale`` is numerator and denominator of rows, then of columns. Bilinear results of integers are wider: they
    are multiplied by both numerators."""
    yn, _, xn, _ = scale
    (y0, y1, fy), (x0, x1, fx) = between(input.shape[1:3], scale, offset, border)
    if mode == "nearest":
        rows, columns = (nearest(*found, n) for found, n in zip(((y0, y1, fy), (x0, x1, fx)), (yn, xn), strict=True))
        return np.ascontiguousarray(input[:, rows][:, :, columns])
    wide: Any = input.astype(np.float64 if input.dtype.kind == "f" else np.int64)
    gy, gx = fy[None, :, None, None], fx[None, None, :, None]
    top = wide[:, y0][:, :, x0] * (xn - gx) + wide[:, y0][:, :, x1] * gx
    bottom = wide[:, y1][:, :, x0] * (xn - gx) + wide[:, y1][:, :, x1] * gx
    made = top * (yn - gy) + bottom * gy
    if input.dtype.kind == "f":
        return np.asarray(made / (yn * xn), input.dtype)
    return np.asarray(made, np.int32 if input.dtype.itemsize == 1 else np.int64)


def between(
    size: Sequence[int], scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> list[tuple[Array, Array, Array]]:
    """For rows and for columns: the two of the image that each result lies between, and how far along, in parts of the
    numerator."""
    made = []
    for axis, (have, n, d) in enumerate(zip(size, scale[::2], scale[1::2], strict=True)):
        count = ((have - 1) * n - offset[axis] + border[axis]) // d + 1
        at = np.arange(count, dtype=np.int64) * d + offset[axis]
        low = at // n
        made.append((np.clip(low, 0, have - 1), np.clip(low + 1, 0, have - 1), at - low * n))
    return made


def nearest(low: Array, high: Array, part: Array, n: int) -> Array:
    """The nearer of two."""
    return np.where(part * 2 >= n, high, low)
