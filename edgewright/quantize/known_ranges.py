"""Ranges that are known, of which a model may use a small part only.

A tanh gives -1 to 1. One that caps softly, ``30 * tanh(x / 30)``, stays near 0, and steps of 1/128 would leave nothing
of it. Its range is then twice what calibration saw: a bit of precision is left for what was not seen.
"""

from __future__ import annotations

from typing import Any

import torch

from edgewright.quantize.nonfinite import FiniteMinMaxObserver

_ROOM = 2.0  # times what was seen


class PartRangeObserver(FiniteMinMaxObserver):
    """``bounds`` is all of the range; where at least half of it was seen, or nothing at all, it is taken whole."""

    def __init__(self, *, bounds: tuple[float, float], **given: Any) -> None:
        super().__init__(**given)
        self.bounds = bounds

    @property
    def share(self) -> float:
        """Of the range, how much is taken."""
        if not self.seen:
            return 1.0
        ends = zip((float(self.min_val), float(self.max_val)), self.bounds, strict=True)
        return min(1.0, _ROOM * max(abs(end / bound) for end, bound in ends if bound))

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
