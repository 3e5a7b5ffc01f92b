"""Exact integer convolution by floating-point matrix products whose partial sums stay exactly representable."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.kernel import Kernel, Pair

Array = np.ndarray[Any, Any]
_STRIP_ELEMENTS = 1 << 21  # large enough for an efficient matrix product, small enough for the cache


def row_strips(rows: int, row_elements: int) -> list[slice]:
    """Split rows into strips of bounded size."""
    step = max(1, _STRIP_ELEMENTS // max(1, row_elements))
    return [slice(at, min(at + step, rows)) for at in range(0, rows, step)]


def convolve(image: Array, weights: Array, window: Kernel, ofm: Pair) -> Array:
    """Convolve a padded HWC input with OHWI weights."""
    matrix = weights.reshape(weights.shape[0], -1).T
    dtype = _exact_type(image, matrix)
    image, matrix = image.astype(dtype), np.ascontiguousarray(matrix, dtype)
    sums = np.empty((*ofm, weights.shape[0]), np.int64)
    for rows in row_strips(ofm[0], ofm[1] * matrix.shape[0]):
        part = image[rows.start * window.stride[0] :]
        view = window.window(part, (rows.stop - rows.start, ofm[1]))
        sums[rows] = (view.reshape(-1, matrix.shape[0]) @ matrix).reshape(-1, *sums.shape[1:])
    return sums


def _exact_type(image: Array, matrix: Array) -> type[Any]:
    """The smallest type in which no partial sum rounds. 40-bit accumulators never exceed 2**53."""
    largest = max(int(image.max()), -int(image.min())) * max(int(matrix.max()), -int(matrix.min())) * matrix.shape[0]
    return np.float32 if largest < 1 << 24 else np.float64 if largest < 1 << 53 else np.int64


def convolve_depthwise(image: Array, weights: Array, window: Kernel, ofm: Pair) -> Array:
    """Depthwise ``convolve``; weights are (channels, height, width, 1)."""
    taps = weights[..., 0].astype(np.int64)
    largest = max(int(image.max()), -int(image.min())) * int(np.abs(taps).max()) * window.elements
    dtype = np.int32 if largest < 1 << 31 else np.int64
    image, taps = image.astype(dtype), taps.astype(dtype)
    view = window.window(image, ofm)
    sums: Array = np.zeros((*ofm, image.shape[2]), dtype)
    for y in range(window.size[0]):
        for x in range(window.size[1]):
            sums += view[:, :, y, x] * taps[:, y, x]
    return sums.astype(np.int64)
