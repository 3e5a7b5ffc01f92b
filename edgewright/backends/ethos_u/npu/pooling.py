"""Pools: the largest, the mean, or the sum over channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.kernel import Kernel, Pair
from edgewright.backends.ethos_u.npu.output_stage import rescale

Array = np.ndarray[Any, Any]
LEAST = {1: -(1 << 10), 2: -(1 << 20), 4: -(1 << 40)}  # below every element of so many bytes: padding is never largest


def largest(image: Array, window: Kernel, ofm: Pair) -> Array:
    view = window.window(image, ofm)
    best = view[:, :, 0, 0].copy()
    for place in range(1, window.elements):
        np.maximum(best, view[:, :, place // window.size[1], place % window.size[1]], out=best)
    return best.astype(np.int64)


def summed(image: Array, window: Kernel, ofm: Pair) -> Array:
    view = window.window(image, ofm)
    sums = np.zeros((*ofm, image.shape[2]), np.int64)
    for place in range(window.elements):
        sums += view[:, :, place // window.size[1], place % window.size[1]]
    return sums


def mean(image: Array, window: Kernel, ofm: Pair, rounding: str) -> Array:
    """The sum, and under a padded window the sum over as many elements as lie within the image.

    A window without padding leaves the division to the output's scale.
    """
    sums = summed(image, window, ofm)
    return divided(sums, _inside(window, ofm), rounding) if window.padded else sums


def divided(sums: Array, counts: Array, rounding: str) -> Array:
    """Sums over counts, by the reciprocals that compilers also give to unpadded windows: a little above the true
    ones, so that ``natural`` rounding takes halves away from zero."""
    extra = np.frexp((counts - 1).astype(np.float64))[1].astype(np.int64)
    return rescale(sums, ((1 << (31 + extra)) + (1 << extra)) // counts, 31 + extra, rounding)


def _inside(window: Kernel, ofm: Pair) -> Array:
    counts = []
    for axis, reach in enumerate(window.reach(ofm)):
        starts = np.arange(ofm[axis])[:, None] * window.stride[axis]
        places = starts + np.arange(window.size[axis]) * window.dilation[axis]
        within = (places >= window.before[axis]) & (places < reach - window.after[axis])
        counts.append(np.maximum(within.sum(1), 1))
    area: Array = (counts[0][:, None] * counts[1])[..., None].astype(np.int64)
    return area
