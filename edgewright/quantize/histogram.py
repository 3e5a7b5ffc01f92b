"""Histograms of activations, with torchao's choice of a range in a fraction of its time: recurrent networks have
hundreds.

torchao looks for quantiles afresh at each step, and each look at a bin is a tensor of its own. Quantiles only move
inwards, so what was passed need not be looked at again.
"""

from __future__ import annotations

import math
from ctypes import c_float

import torch
from torchao.quantization.pt2e import HistogramObserver

_STEP = 1e-5  # of all that was seen, how much is given up at once


class RangeObserver(HistogramObserver):  # type: ignore[misc]
    """``HistogramObserver``, and its scales to the bit."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The ends of the range: of the whole one, the end with fewer values near it is moved inwards for as long as
        rounding errors become no larger."""
        seen: list[float] = self.histogram.cumsum(0).tolist()
        total = float(self.histogram.sum())
        first, last, least = 0, self.bins - 1, math.inf
        left, right = first, last  # where the next quantiles are, whatever the ends are now
        below, above = 0.0, 1.0  # the quantiles that were given up
        while below < above:
            left = _forward(seen, left, (below + _STEP) * total)
            right = _backward(seen, right, (above - _STEP) * total)
            start, end = min(max(left, first), last), max(min(right, last), first)
            if start - first > last - end:
                below, tried = below + _STEP, (start, last)
            else:
                above, tried = above - _STEP, (first, end)
            if tried == (first, last):
                continue
            error = self._compute_quantization_error(*tried)
            if error > least:
                break
            (first, last), least = tried, error
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)


def _forward(seen: list[float], at: int, count: float) -> int:
    """The first bin, from one on, up to which so much was seen. Counts are compared in single precision."""
    count = c_float(count).value
    while at < len(seen) and seen[at] < count:
        at += 1
    return at


def _backward(seen: list[float], at: int, count: float) -> int:
    """The last bin, from one back, up to which no more was seen."""
    count = c_float(count).value
    while at >= 0 and seen[at] > count:
        at -= 1
    return at
