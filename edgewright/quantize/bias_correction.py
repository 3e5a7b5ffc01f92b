"""Bias correction: rounding shifts the mean of a layer's channels, and the bias takes the shift back (Nagel et al.,
2019), as measured on calibration data."""

from __future__ import annotations

import torch

from edgewright.quantize.layer_walk import LayerSamples
from edgewright.quantize.layers import set_bias


def correct_bias(samples: LayerSamples) -> None:
    """Give every channel of a layer's results the mean that it has in floating point."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for exact, rounded in zip(samples.exact, samples.results(), strict=True):
        rows = (exact - rounded).double().movedim(samples.layer.axis(exact.dim()), 0).flatten(1)
        total = total + rows.sum(1)
        count += rows.shape[1]
    shift = (total / max(count, 1)).float()
    bias = samples.bias
    set_bias(samples.layer, shift if bias is None else bias + shift)
