"""Pooling: max, average, and sum over channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.kernel import Kernel, Pair
from edgewright.backends.ethos_u.npu.output_stage import rescale

Array = np.ndarray[Any, Any]
# Below any element, by element size: padding is never the maximum
PADDING_VALUE = {1: -(1 << 10), 2: -(1 << 20), 4: -(1 << 40)}


def max_pool(image: Array, window: Kernel, ofm: Pair) -> Array:
    view = window.window(image, ofm)
    result = view[:, :, 0, 0].copy()
    for tap in range(1, window.elements):
        np.maximum(result, view[:, :, tap // window.size[1], tap % window.size[1]], out=result)
    return result.astype(np.int64)


def sum_pool(image: Array, window: Kernel, ofm: Pair) -> Array:
    view = window.window(image, ofm)
    sums = np.zeros((*ofm, image.shape[2]), np.int64)
    for tap in range(window.elements):
        sums += view[:, :, tap // window.size[1], tap % window.size[1]]
    return sums


def average_pool(image: Array, window: Kernel, ofm: Pair, rounding: str) -> Array:
    """Window sums; under padding, the average over the elements inside the input.

    Without padding the division is left to the output scale.
    """
    sums = sum_pool(image, window, ofm)
    return divide_by_counts(sums, _valid_counts(window, ofm), rounding) if window.padded else sums


def divide_by_counts(sums: Array, counts: Array, rounding: str) -> Array:
    """``sums / counts`` by the fixed-point reciprocals that compilers also use for unpadded windows.

    They are slightly above the exact value, so that ``natural`` rounding rounds ties away from zero.
    """
    count_bits = np.frexp((counts - 1).astype(np.float64))[1].astype(np.int64)
    return rescale(sums, ((1 << (31 + count_bits)) + (1 << count_bits)) // counts, 31 + count_bits, rounding)


def _valid_counts(window: Kernel, ofm: Pair) -> Array:
    counts = []
    for axis, reach in enumerate(window.reach(ofm)):
        starts = np.arange(ofm[axis])[:, None] * window.stride[axis]
        indices = starts + np.arange(window.size[axis]) * window.dilation[axis]
        valid = (indices >= window.before[axis]) & (indices < reach - window.after[axis])
        counts.append(np.maximum(valid.sum(1), 1))
    area: Array = (counts[0][:, None] * counts[1])[..., None].astype(np.int64)
    return area
