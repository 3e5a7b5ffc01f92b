"""Ranges that are smaller than a few steps of the device's smallest scale.

Vendors' presets bound scales from below (2^-12 for 8 bits on Exynos, 2^-16 on Ethos-U). A value whose whole range spans
fewer steps keeps hardly a bit, or becomes zero.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import fx

from edgewright.frontend.origin import describe_node
from edgewright.quantize.nonfinite import observed_values, value_name

log = logging.getLogger("edgewright.quantize")

_FEWEST_STEPS = 16


def report_small_ranges(prepared: fx.GraphModule) -> None:
    """Warn of each value with a range of fewer than 16 steps of the smallest scale, with its module."""
    reported = set()
    for value, observer in observed_values(prepared):
        span, step = _span(observer), float(getattr(observer, "eps", 0.0))
        if observer in reported or not 0 < span < _FEWEST_STEPS * step:
            continue
        reported.add(observer)
        message = (
            "%s spans %.2g, which is %.2g steps of the smallest scale (%.2g): little or nothing of it is left. Scale "
            "the model so that the value is larger (fold a factor into its weights), or leave the module in floating "
            "point. %s"
        )
        log.warning(message, value_name(value), span, span / step, step, describe_node(value)[1])


def _span(observer: Any) -> float:
    """The extent of the observed range, zero included; of the channel with the largest. 0 if nothing was observed."""
    low, high = (getattr(observer, name, None) for name in ("min_val", "max_val"))
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor) or not low.numel():
        return 0.0
    extent = float((high.clamp(min=0) - low.clamp(max=0)).max())
    return extent if extent != float("inf") and bool((low <= high).any()) else 0.0
