"""Ranges that are smaller than a few steps of the device's smallest scale.

Vendors' presets bound scales from below (2^-12 for 8 bits on Exynos, 2^-16 on Ethos-U). A value whose whole range spans
fewer steps keeps hardly a bit, or becomes zero.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any

import torch
from torch import fx

from edgewright.frontend.origin import describe_node
from edgewright.quantize.nonfinite import observed_values, value_name

log = logging.getLogger("edgewright.quantize")

_FEWEST_STEPS = 16
_REPORTED: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()


def report_small_ranges(prepared: fx.GraphModule) -> None:
    """Warn of values with a range of fewer than 16 steps of the smallest scale, naming the first. Once for a model."""
    if prepared in _REPORTED:
        return
    _REPORTED.add(prepared)
    small: dict[Any, fx.Node] = {}
    for value, observer in observed_values(prepared):
        if 0 < _span(observer) < _FEWEST_STEPS * _smallest_scale(observer):
            small.setdefault(observer, value)
    if not small:
        return
    observer, first = next(iter(small.items()))
    span, step = _span(observer), _smallest_scale(observer)
    message = (
        "%s spans %.2g, which is %.2g steps of the smallest scale (%.2g): little or nothing of it is left%s. Scale the "
        "model so that such values are larger (fold a factor into weights; an untrained network may have vanishing "
        "ones), or leave the module in floating point. %s"
    )
    others = f", nor of {len(small) - 1} more" if len(small) > 1 else ""
    log.warning(message, value_name(first), span, span / step, step, others, describe_node(first)[1])


def _smallest_scale(observer: Any) -> float:
    return float(getattr(observer, "eps", 0.0))


def _span(observer: Any) -> float:
    """The extent of the observed range, zero included; of the channel with the largest. 0 if nothing was observed."""
    low, high = (getattr(observer, name, None) for name in ("min_val", "max_val"))
    if not isinstance(low, torch.Tensor) or not isinstance(high, torch.Tensor) or not low.numel():
        return 0.0
    extent = float((high.clamp(min=0) - low.clamp(max=0)).max())
    return extent if extent != float("inf") and bool((low <= high).any()) else 0.0
