"""Convolutions, in exact integers: matrix products of floats whose sums stay below the first inexact integer."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.kernel import Kernel, Pair

Array = np.ndarray[Any, Any]
_STRIP = 1 << 21  # elements worked on at once: large enough for the matrix product, small enough for the cache


def strips(rows: int, row_elements: int) -> list[slice]:
    """Rows in pieces of bounded size."""
    step = max(1, _STRIP // max(1, row_elements))
    return [slice(at, min(at + step, rows)) for at in range(0, rows, step)]


def convolve(image: Array, weights: Array, window: Kernel, ofm: Pair) -> Array:
    """Sums of products of a padded image (rows, columns, channels) and weights (out, rows, columns, channels)."""
    matrix = weights.reshape(weights.shape[0], -1).T
    dtype = _exact_type(image, matrix)
    image, matrix = image.astype(dtype), np.ascontiguousarray(matrix, dtype)
    sums = np.empty((*ofm, weights.shape[0]), np.int64)
    for rows in strips(ofm[0], ofm[1] * matrix.shape[0]):
        part = image[rows.start * window.stride[0] :]
        view = window.window(part, (rows.stop - rows.start, ofm[1]))
        sums[rows] = (view.reshape(-1, matrix.shape[0]) @ matrix).reshape(-1, *sums.shape[1:])
    return sums


def _exact_type(image: Array, matrix: Array) -> type[Any]:
    """The smallest type in which no partial sum is rounded. Sums beyond 2**53 cannot come of 40-bit accumulators."""
    largest = max(int(image.max()), -int(image.min())) * max(int(matrix.max()), -int(matrix.min())) * matrix.shape[0]
    return np.float32 if largest < 1 << 24 else np.float64 if largest < 1 << 53 else np.int64


def convolve_depthwise(image: Array, weights: Array, window: Kernel, ofm: Pair) -> Array:
    """As ``convolve``, each channel by itself; weights are (channels, rows, columns, 1)."""
    per_place = weights[..., 0].astype(np.int64)
    largest = max(int(image.max()), -int(image.min())) * int(np.abs(per_place).max()) * window.elements
    dtype = np.int32 if largest < 1 << 31 else np.int64
    image, per_place = image.astype(dtype), per_place.astype(dtype)
    view = window.window(image, ofm)
    sums: Array = np.zeros((*ofm, image.shape[2]), dtype)
    for y in range(window.size[0]):
        for x in range(window.size[1]):
            sums += view[:, :, y, x] * per_place[:, y, x]
    return sums.astype(np.int64)
