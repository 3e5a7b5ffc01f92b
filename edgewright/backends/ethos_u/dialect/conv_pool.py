"""Reference of TOSA's convolutions, pools and RESIZE in exact integers (and floating point). Images are NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Array

# Integer products are summed in float64: exact below 2**53, and as fast as BLAS.
_EXACT = np.float64


def _accumulator_type(array: Array) -> Any:
    if array.dtype.kind == "f":
        return np.float32
    return np.int64 if array.dtype.itemsize == 2 else np.int32  # 48 bits, or 32


def _patches(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """View of all windows, ``(n, oh, ow, kh, kw, c)``, of a padded image."""
    n, h, w, c = x.shape
    oh = (h - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (w - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
    sn, sh, sw, sc = x.strides
    shape = (n, oh, ow, kernel[0], kernel[1], c)
    steps = (sn, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1], sc)
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def _pad(x: Array, pad: Sequence[int], value: float = 0) -> Array:
    top, bottom, left, right = pad
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


def conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is OHWI."""
    x = _pad(input.astype(_EXACT) - input_zp, pad)
    w = weight.astype(_EXACT) - weight_zp
    out, kh, kw, _ = w.shape
    windows = _patches(x, (kh, kw), stride, dilation)
    n, oh, ow = windows.shape[:3]
    acc = windows.reshape(n * oh * ow, -1) @ w.reshape(out, -1).T + bias.astype(_EXACT)
    return acc.reshape(n, oh, ow, out).astype(_accumulator_type(input))


def conv3d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``input`` is NDHWC, ``weight`` ODHWI: a sum of 2-D convolutions over the kernel depth."""
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
    return np.stack(slices, axis=1).astype(_accumulator_type(input))


def depthwise_conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, pad: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is HWCM; output channel ``c * M + m``."""
    x = _pad(input.astype(_EXACT) - input_zp, pad)
    w = weight.astype(_EXACT) - weight_zp
    kh, kw, c, m = w.shape
    windows = _patches(x, (kh, kw), stride, dilation)
    n, oh, ow = windows.shape[:3]
    acc = np.zeros((n, oh, ow, c, m), _EXACT)
    for y in range(kh):
        for z in range(kw):
            acc += windows[:, :, :, y, z, :, None] * w[y, z]
    return (acc.reshape(n, oh, ow, c * m) + bias.astype(_EXACT)).astype(_accumulator_type(input))


def transpose_conv2d(
    input: Array, weight: Array, bias: Array, input_zp: int, weight_zp: int, out_pad: Sequence[int],
    stride: Sequence[int],
) -> Array:  # fmt: skip
    """``weight`` is OHWI. ``out_pad`` is added to the edges of the result (negative: cropped)."""
    x, w = input.astype(_EXACT) - input_zp, weight.astype(_EXACT) - weight_zp
    n, h, w_in, _ = x.shape
    out, kh, kw, _ = w.shape
    top, bottom, left, right = out_pad
    size = ((h - 1) * stride[0] + kh, (w_in - 1) * stride[1] + kw)
    acc = np.zeros((n, *size, out), _EXACT)
    for y in range(kh):
        for z in range(kw):
            rows = slice(y, y + (h - 1) * stride[0] + 1, stride[0])
            columns = slice(z, z + (w_in - 1) * stride[1] + 1, stride[1])
            acc[:, rows, columns] += x @ w[:, y, z].T
    padded = _pad(acc, [max(p, 0) for p in out_pad])
    y0, x0 = max(-top, 0), max(-left, 0)
    cropped = padded[:, y0 : padded.shape[1] - max(-bottom, 0), x0 : padded.shape[2] - max(-right, 0)]
    return (cropped + bias.astype(_EXACT)).astype(_accumulator_type(input))


def matmul(a: Array, b: Array, a_zp: int, b_zp: int) -> Array:
    return ((a.astype(_EXACT) - a_zp) @ (b.astype(_EXACT) - b_zp)).astype(_accumulator_type(a))


def max_pool2d(input: Array, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> Array:
    lowest = -np.inf if input.dtype.kind == "f" else int(np.iinfo(input.dtype).min)
    windows = _patches(_pad(input, pad, lowest), kernel, stride, (1, 1))
    return np.ascontiguousarray(windows.max(axis=(3, 4)))


def avg_pool2d(
    input: Array, input_zp: int, output_zp: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> Array:
    """Padding is not counted. Integers are multiplied by TOSA's reciprocal, rounding half up."""
    x = _pad(input.astype(_EXACT) - input_zp, pad)
    valid = _pad(np.ones((1, *input.shape[1:3], 1)), pad)
    total = _patches(x, kernel, stride, (1, 1)).sum(axis=(3, 4))
    count = _patches(valid, kernel, stride, (1, 1)).sum(axis=(3, 4))
    if input.dtype.kind == "f":
        return (total / count).astype(input.dtype)
    multiplier, shift = reciprocal_scale(count.astype(np.int64))
    scaled = (total.astype(np.int64) * multiplier + (np.int64(1) << (shift - 1))) >> shift
    limits = np.iinfo(input.dtype)
    return np.clip(scaled + output_zp, limits.min, limits.max).astype(input.dtype)


def reciprocal_scale(count: Array) -> tuple[Array, Array]:
    """Multiplier and shift of 1/count, as TOSA's ``reciprocal_scale`` defines them."""
    bits = np.frompyfunc(lambda n: (n - 1).bit_length(), 1, 1)(count.astype(object)).astype(np.int64)
    multiplier = ((np.int64(1) << 30) + 1) * (np.int64(1) << bits) // count
    return multiplier, 30 + bits


def resize(
    input: Array, scale: Sequence[int], offset: Sequence[int], border: Sequence[int], mode: str
) -> Array:  # fmt: skip
    """``scale`` is (numerator, denominator) of rows, then of columns.

    Bilinear integer results are wider: they are scaled by both numerators.
    """
    yn, _, xn, _ = scale
    (y0, y1, fy), (x0, x1, fx) = source_positions(input.shape[1:3], scale, offset, border)
    if mode == "nearest":
        rows, columns = (
            nearest_index(*position, n) for position, n in zip(((y0, y1, fy), (x0, x1, fx)), (yn, xn), strict=True)
        )
        return np.ascontiguousarray(input[:, rows][:, :, columns])
    wide: Any = input.astype(np.float64 if input.dtype.kind == "f" else np.int64)
    gy, gx = fy[None, :, None, None], fx[None, None, :, None]
    top = wide[:, y0][:, :, x0] * (xn - gx) + wide[:, y0][:, :, x1] * gx
    bottom = wide[:, y1][:, :, x0] * (xn - gx) + wide[:, y1][:, :, x1] * gx
    acc = top * (yn - gy) + bottom * gy
    if input.dtype.kind == "f":
        return np.asarray(acc / (yn * xn), input.dtype)
    return np.asarray(acc, np.int32 if input.dtype.itemsize == 1 else np.int64)


def source_positions(
    size: Sequence[int], scale: Sequence[int], offset: Sequence[int], border: Sequence[int]
) -> list[tuple[Array, Array, Array]]:
    """Per axis: the two neighboring source indices of each output, and the fraction in parts of the numerator."""
    positions = []
    for axis, (in_size, n, d) in enumerate(zip(size, scale[::2], scale[1::2], strict=True)):
        count = ((in_size - 1) * n - offset[axis] + border[axis]) // d + 1
        scaled = np.arange(count, dtype=np.int64) * d + offset[axis]
        low = scaled // n
        positions.append((np.clip(low, 0, in_size - 1), np.clip(low + 1, 0, in_size - 1), scaled - low * n))
    return positions


def nearest_index(low: Array, high: Array, fraction: Array, n: int) -> Array:
    """The nearer of the two source indices."""
    return np.where(fraction * 2 >= n, high, low)
