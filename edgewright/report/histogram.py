"""Histograms of weights and activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.report.model import Histogram

_BINS = 24
_SAMPLE = 1 << 16  # elements that are counted; larger tensors are sampled at equal distances


def histogram(title: str, data: Any) -> Histogram | None:
    """The distribution of an array's finite elements; None for one without any.

    >>> histogram("x", np.arange(48)).counts[:3]
    (2, 2, 2)
    """
    flat = np.asarray(data).reshape(-1)
    if not flat.size or flat.dtype.names or flat.dtype.kind in "cOSU":
        return None
    sample = flat[:: -(-flat.size // _SAMPLE)].astype(np.float64)
    finite = sample[np.isfinite(sample)]
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    counts, _ = np.histogram(finite, bins=_BINS, range=(low, high if high > low else low + 1))
    return Histogram(title, low, high, tuple(int(c) for c in counts), int(flat.size), int(finite.size))
