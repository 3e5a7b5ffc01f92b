"""Bias correction: rounding shifts the mean of a layer's channels, and the bias takes the shift back (Nagel et al.,
2019), as measured on calibration data.

A shift is known as well as the inputs agree on it. Each channel's is therefore reduced by its standard error over the
inputs: a classifier sees one value per input, and a few dozen say little about the mean of a thousand classes.
"""

from __future__ import annotations

import torch

from edgewright.quantize.layer_walk import LayerSamples
from edgewright.quantize.layers import set_bias


def correct_bias(samples: LayerSamples) -> None:
    """Give the channels of a layer's results the means that they have in floating point."""
    means = torch.cat([_means(samples, e - r) for e, r in zip(samples.exact, samples.results(), strict=True)])
    shift = shrunk_mean(means).float()
    bias = samples.bias
    set_bias(samples.layer, shift if bias is None else bias + shift)


def _means(samples: LayerSamples, errors: torch.Tensor) -> torch.Tensor:
    """The mean error of each channel in each element of a batch: [batch, channels]."""
    axis = samples.layer.axis(errors.dim())
    rows = errors.double().movedim(axis, -1)
    return rows.reshape(rows.shape[0] if axis else 1, -1, rows.shape[-1]).mean(1)


def shrunk_mean(means: torch.Tensor) -> torch.Tensor:
    """The means of columns, each times the share of it that is not chance: m^2 / (m^2 + e^2), e its standard error.

    >>> shrunk_mean(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).tolist()
    [1.0, 0.0]
    """
    mean = means.mean(0)
    if len(means) < 2:
        return mean
    error = means.var(0) / len(means)
    return mean * mean.square() / (mean.square() + error).clamp(min=1e-30)
