"""Observer for results with a known range, of which a model may use only a small part.

The range of tanh is -1 to 1, but in a soft cap, ``30 * tanh(x / 30)``, it stays near 0, where a scale of 1/128 leaves
no precision. The observer then uses twice the calibrated range: one bit of headroom for larger values.
"""

from __future__ import annotations

from typing import Any

import torch

from edgewright.quantize.nonfinite import FiniteMinMaxObserver

_HEADROOM = 2.0  # multiple of the observed range


class KnownRangeObserver(FiniteMinMaxObserver):
    """``bounds`` is the known range; it applies in full if at least half of it, or nothing, was observed."""

    def __init__(self, *, bounds: tuple[float, float], **options: Any) -> None:
        super().__init__(**options)
        self.bounds = bounds

    @property
    def share(self) -> float:
        """The fraction of the known range to use."""
        if not self.seen:
            return 1.0
        observed = zip((float(self.min_val), float(self.max_val)), self.bounds, strict=True)
        return min(1.0, _HEADROOM * max(abs(observed_bound / bound) for observed_bound, bound in observed if bound))

    def calculate_qparams(self) -> Any:
        self.report_unnamed()
        low, high = (bound * self.share for bound in self.bounds)
        first, last = int(self.quant_min), int(self.quant_max)
        if self.qscheme == torch.per_tensor_symmetric and first < 0:
            scale, zero = max(abs(low), abs(high)) / last, 0
        else:
            scale = (high - low) / (last - first)
            zero = max(first, min(last, round(first - low / max(scale, float(self.eps)))))
        scale = max(scale, float(self.eps))
        return torch.tensor([scale], dtype=torch.float64), torch.tensor([zero], dtype=torch.int32)
