"""Reference of TOSA's convolutions in exact integers and floating point, and of float pools. Images are NHWC."""

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


def avg_pool2d(
    input: Array, input_zp: int, output_zp: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> Array:
    """Of floating point; padding is not counted."""
    x, inside = (_pad(array, pad) for array in (input.astype(np.float64), np.ones((1, *input.shape[1:3], 1))))
    total, count = (_patches(array, kernel, stride, (1, 1)).sum(axis=(3, 4)) for array in (x, inside))
    return np.asarray((total / count).astype(input.dtype))
