"""Histograms of activations, with torchao's choice of a range in a fraction of its time: recurrent networks have
hundreds.

torchao tries one range after another, each with two dozen operators on the histogram, and looks for quantiles afresh at
each step. Which ranges it tries does not depend on their errors, only how many: so quantiles are found for many steps
at once, and errors are computed for several ranges at once, by the same operators in the same order.
"""

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

_STEP = 1e-5  # of all that was seen, how much is given up at once
_FEWEST, _MOST = 4, 32  # ranges that errors are computed for at once

Range = tuple[int, int]  # the first and the last bin


class RangeObserver(FiniteRange, HistogramObserver):  # type: ignore[misc]
    """``HistogramObserver`` of finite elements, and its scales to the bit."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The ends of the range: of the whole one, the end with fewer values near it is moved inwards for as long as
        rounding errors become no larger."""
        first, last = self._best()
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def _best(self) -> Range:
        best, least = (0, self.bins - 1), math.inf
        ranges, count = _ranges(self.histogram), _FEWEST
        while tried := list(islice(ranges, count)):
            for each, error in zip(tried, self._errors(tried), strict=True):
                if error > least:
                    return best
                best, least = each, error
            count = min(2 * count, _MOST)
        return best

    def _errors(self, tried: list[Range]) -> list[float]:
        """What torchao's ``_compute_quantization_error`` gives for each of several ranges: a row for each, and the
        sum of each row by itself."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        widths = [width * (last - first + 1) / self.dst_nbins for first, last in tried]
        if 0.0 in widths:
            return [0.0] * len(tried)  # all that was seen is one number
        step, half = _column(widths), _column([w / 2 for w in widths])
        begin = (torch.arange(self.bins) - torch.tensor([[first] for first, _ in tried])) * width
        end = begin + width
        to, most = torch.div(begin, step, rounding_mode="floor"), self.dst_nbins - 1
        bin_of_begin = to.clamp_(0, most)
        bin_of_end = torch.div(end, step, rounding_mode="floor").clamp_(0, most)
        density = self.histogram / width
        ones = torch.ones(self.bins)
        norm = torch.zeros(len(tried), self.bins)
        norm += self._get_norm(begin - (bin_of_begin + 0.5) * step, ones * half, density)
        norm += (bin_of_end - bin_of_begin - 1) * self._get_norm(-half, half, density)
        norm += self._get_norm(-half, end - (bin_of_end * step + half), density)
        return [row.sum().item() for row in norm]


def _column(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def _ranges(histogram: torch.Tensor) -> Iterator[Range]:
    """The ranges to be tried, each within the one before."""
    seen: list[float] = histogram.cumsum(0).tolist()
    total = float(histogram.sum())
    below, above = _quantiles()
    first, last = 0, len(seen) - 1
    i = j = 0  # how many steps were given up at each end
    while first < last and j + 1 < len(above) and i + 1 < len(below) and below[i] < above[j]:
        left = bisect_left(seen, _single(below[i + 1] * total))
        right = bisect_right(seen, _single(above[j + 1] * total)) - 1
        start, end = min(max(left, first), last), max(min(right, last), first)
        if start - first > last - end:
            first, i = start, i + 1
        elif end == last:  # and start is first: nothing moves until less was seen up to the right quantile
            j = _first_below(above, total, seen[last], j + 1)
            continue
        else:
            last, j = end, j + 1
        yield first, last


def _first_below(above: list[float], total: float, count: float, step: int) -> int:
    """The first step, from one on, after which the quantile is below a count."""
    return bisect_left(above, True, step + 1, key=lambda share: _single(share * total) < count) - 1


@cache
def _quantiles() -> tuple[list[float], list[float]]:
    """The quantiles that were given up at both ends after so many steps, summed up one step at a time."""
    steps = [_STEP] * (round(1 / _STEP) + 2)
    return list(accumulate(steps, initial=0.0)), list(accumulate(steps, operator.sub, initial=1.0))


def _single(count: float) -> float:
    """Counts are compared in single precision."""
    return c_float(count).value
