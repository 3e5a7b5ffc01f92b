"""Histogram observer with a vectorized version of torchao's range search: the same scales, bit for bit."""

# The search (``HistogramObserver._non_linear_param_search``, after Caffe2's norm_minimization.cc) minimizes the L2
# quantization error over clipping ranges. It starts with the full range; each step advances the lower or the upper
# quantile by 1e-5, whichever moves its bound across more bins, and the search stops when the error grows. torchao
# computes each error with about two dozen operators and each quantile by a linear scan, which dominates the calibration
# of recurrent networks with their hundreds of observers. The sequence of ranges does not depend on the errors, only its
# length does. So ``_ranges`` generates it from the cumulative histogram by bisection, and ``_errors`` evaluates a batch
# of ranges (4, 8, ... 32) as rows of a matrix. Results must match to the last bit: quantiles are accumulated by
# repeated addition, counts are compared in float32, and errors use torchao's operators in torchao's order.

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from ctypes import c_float
from functools import cache
from itertools import accumulate, islice

import torch
from torchao.quantization.pt2e import HistogramObserver

from edgewright.quantize.nonfinite import FiniteRange

_STEP = 1e-5  # fraction of the observed elements that one step of the search clips
_MIN_BATCH, _MAX_BATCH = 4, 32  # ranges per batch

BinRange = tuple[int, int]  # the first and the last bin


class FiniteHistogramObserver(FiniteRange, HistogramObserver):  # type: ignore[misc]
    """``HistogramObserver`` of finite elements, with bit-identical scales."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The bounds of the range with the smallest quantization error."""
        first, last = self._best_range()
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def _best_range(self) -> BinRange:
        best, least_error = (0, self.bins - 1), math.inf
        ranges, count = _ranges(self.histogram), _MIN_BATCH
        while batch := list(islice(ranges, count)):
            for candidate, error in zip(batch, self._errors(batch), strict=True):
                if error > least_error:
                    return best
                best, least_error = candidate, error
            count = min(2 * count, _MAX_BATCH)
        return best

    def _errors(self, ranges: list[BinRange]) -> list[float]:
        """torchao's ``_compute_quantization_error`` for several ranges: one row per range, each row summed on its
        own."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        widths = [width * (last - first + 1) / self.dst_nbins for first, last in ranges]
        if 0.0 in widths:
            return [0.0] * len(ranges)  # all observed elements are equal
        step, half = _column(widths), _column([w / 2 for w in widths])
        begin = (torch.arange(self.bins) - torch.tensor([[first] for first, _ in ranges])) * width
        end = begin + width
        begin_bin, last_bin = torch.div(begin, step, rounding_mode="floor"), self.dst_nbins - 1
        bin_of_begin = begin_bin.clamp_(0, last_bin)
        bin_of_end = torch.div(end, step, rounding_mode="floor").clamp_(0, last_bin)
        density = self.histogram / width
        ones = torch.ones(self.bins)
        norm = torch.zeros(len(ranges), self.bins)
        norm += self._get_norm(begin - (bin_of_begin + 0.5) * step, ones * half, density)
        norm += (bin_of_end - bin_of_begin - 1) * self._get_norm(-half, half, density)
        norm += self._get_norm(-half, end - (bin_of_end * step + half), density)
        return [row.sum().item() for row in norm]


def _column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def _ranges(histogram: torch.Tensor) -> Iterator[BinRange]:
    """The ranges of the search, each inside the previous one."""
    cumulative: list[float] = histogram.cumsum(0).tolist()
    total = float(histogram.sum())
    below, above = _quantiles()
    first, last = 0, len(cumulative) - 1
    i = j = 0  # steps taken at the lower and the upper end
    while first < last and j + 1 < len(above) and i + 1 < len(below) and below[i] < above[j]:
        left = bisect_left(cumulative, _to_float32(below[i + 1] * total))
        right = bisect_right(cumulative, _to_float32(above[j + 1] * total)) - 1
        start, end = min(max(left, first), last), max(min(right, last), first)
        if start - first > last - end:
            first, i = start, i + 1
        elif end == last:  # no bound moves: skip to the step at which the upper quantile drops below the last bin
            j = _first_below(above, total, cumulative[last], j + 1)
            continue
        else:
            last, j = end, j + 1
        yield first, last


def _first_below(above: list[float], total: float, count: float, step: int) -> int:
    """The first step, from ``step`` on, after which the quantile is below a count."""
    return bisect_left(above, True, step + 1, key=lambda share: _to_float32(share * total) < count) - 1


@cache
def _quantiles() -> tuple[list[float], list[float]]:
    """The lower and upper quantiles after each number of steps, accumulated one step at a time as torchao does."""
    steps = [_STEP] * (round(1 / _STEP) + 2)
    return list(accumulate(steps, initial=0.0)), list(accumulate(steps, operator.sub, initial=1.0))


def _to_float32(count: float) -> float:
    """A count rounded to float32, in which torchao compares."""
    return c_float(count).value
