"""Observers that choose a narrower range than all that they saw: finer steps for the most, at the price of the few.

Activations are collected in a histogram. A percentile leaves out a fixed share of the elements at each end. The least
squared error weighs what clipping costs against what finer steps gain; torchao's observer searches for it too, but one
end at a time from the full range, and stops at the first step that does not help. Here all pairs of bounds of a grid
are compared. Only headroom is wider than what was seen. Weights are not collected: every call has the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver

from edgewright.quantize.nonfinite import FiniteRange

PERCENTILE = 99.99  # percent of the elements inside each bound
_GRID = 64  # bounds that are tried at each end of a histogram
_SHARES = [1 - step / 50 for step in range(36)]  # of the largest weight: 1.00, 0.98, ... 0.30


class PercentileObserver(FiniteRange, HistogramObserver):  # type: ignore[misc]
    """The range without the outermost ``1 - PERCENTILE / 100`` of the elements at each end."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        cumulative = self.histogram.double().cumsum(0)
        outside = float(cumulative[-1]) * (1 - PERCENTILE / 100)
        first = int(torch.searchsorted(cumulative, outside, right=True))
        last = int(torch.searchsorted(cumulative, float(cumulative[-1]) - outside))
        last = min(max(last, first), self.bins - 1)
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * first, self.min_val + width * (last + 1)


class HeadroomObserver(FiniteRange, HistogramObserver):  # type: ignore[misc]
    """Twice the range of all that it saw. 16 bits can spare one: an element beyond the range costs more than the last
    bit gains."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.min_val * 2, self.max_val * 2


class MseObserver(FiniteRange, HistogramObserver):  # type: ignore[misc]
    """The range whose clipping and rounding have the least squared error together."""

    def _non_linear_param_search(self) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = float(self.min_val), float(self.max_val)
        if not low < high:
            return self.min_val, self.max_val
        width = (high - low) / self.bins
        centers = low + width * (torch.arange(self.bins, dtype=torch.float64) + 0.5)
        counts = self.histogram.double()
        first = torch.linspace(low, min(0.0, high), _GRID, dtype=torch.float64) if low < 0 else torch.zeros(1).double()
        last = torch.linspace(high, max(0.0, low), _GRID, dtype=torch.float64) if high > 0 else torch.zeros(1).double()
        if self.qscheme == torch.per_tensor_symmetric:  # one bound decides
            last = torch.linspace(max(-low, high), 0, _GRID, dtype=torch.float64)[:-1]
            bounds = torch.stack([-last, last], 1)
        else:
            bounds = torch.cartesian_prod(first, last)
        best = bounds[int(self._errors(bounds, centers, counts).argmin())].tolist()
        kind = self.min_val.dtype
        return torch.tensor(max(best[0], low), dtype=kind), torch.tensor(min(best[1], high), dtype=kind)

    def _errors(self, bounds: torch.Tensor, centers: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """The squared error of each range: of clipped elements their distance to the bound, of others a twelfth of a
        squared step. Each bound is looked at once, however many ranges it is in."""
        unique: Any = torch.unique
        (low, of_low), (high, of_high) = (unique(bounds[:, end], return_inverse=True) for end in (0, 1))
        below = (low[:, None] - centers).clamp(min=0).square() @ counts
        above = (centers - high[:, None]).clamp(min=0).square() @ counts
        inside = (centers <= high[:, None]).double() @ counts
        outside = (centers < low[:, None]).double() @ counts
        width = bounds[:, 1] - bounds[:, 0]
        step = width / (self.quant_max - self.quant_min)
        error = below[of_low] + above[of_high] + (inside[of_high] - outside[of_low]) * step.square() / 12
        result: torch.Tensor = torch.where(width > 0, error, torch.inf)
        return result


class _LeastSquares:
    """Mixin for observers of weights: the range whose rounding has the least squared error, of each channel."""

    searched: tuple[Any, ...] = (
        None,
    )  # the weight whose range is known: calibration passes the same one in every call

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        observer: Any = self
        is_known = weight is self.searched[0]
        if is_known and observer.min_val.numel() and bool(observer.min_val.isfinite().all()):
            return weight
        self.searched = (weight,)  # as a tuple: modules register tensors that are attributes
        observer.reset_min_max_vals()
        super().forward(weight)  # type: ignore[misc]
        axis = observer.ch_axis if isinstance(self, PerChannelMinMaxObserver) else None
        rows = weight.detach().reshape(1, -1) if axis is None else weight.detach().transpose(0, axis).flatten(1)
        low, high = observer.min_val.clone(), observer.max_val.clone()
        best = torch.full((len(rows),), torch.inf)
        share = torch.ones(len(rows))
        for part in _SHARES:
            scale, _ = observer._calculate_qparams(low * part, high * part)
            integers = torch.round(rows / scale[:, None]).clamp(observer.quant_min, observer.quant_max)
            error = (integers * scale[:, None] - rows).square().sum(1)
            share, best = torch.where(error < best, part, share), torch.minimum(error, best)
        observer.min_val, observer.max_val = (
            (bound * share.reshape(bound.shape)).to(bound.dtype) for bound in (low, high)
        )
        return weight


class MseWeightObserver(_LeastSquares, MinMaxObserver):  # type: ignore[misc]
    """Of weights with one scale."""


class MseChannelWeightObserver(_LeastSquares, PerChannelMinMaxObserver):  # type: ignore[misc]
    """Of weights with one scale for each channel."""
