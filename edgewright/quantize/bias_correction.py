"""Bias correction: rounding shifts the mean of a layer's channels, and the bias takes the shift back (Nagel et al.,
2019), as measured on calibration data.

What counts is the shift behind the activation that follows: of the elements that a ReLU sets to 0, no error passes, and
their mean says nothing about the others. So each element weighs as much as the activation's slope there lets through;
this is a step of Gauss and Newton towards the least squared error behind the activation.

A shift is known as well as the inputs agree on it. Each channel's is therefore reduced by its standard error over the
inputs: a classifier sees one value per input, and a few dozen say little about the mean of a thousand classes.
"""

from __future__ import annotations

import torch

from edgewright.quantize.layer_walk import LayerSamples
from edgewright.quantize.layers import Activation, activation_of, set_bias


def correct_bias(samples: LayerSamples) -> None:
    """Move the channels of a layer's results to where the activation's results are those in floating point."""
    activation = activation_of(samples.layer)
    parts = [_shifts(samples, activation, e, r) for e, r in zip(samples.exact, samples.results(), strict=True)]
    shift = shrunk_mean(*(torch.cat(part) for part in zip(*parts, strict=True))).float()
    bias = samples.bias
    set_bias(samples.layer, shift if bias is None else bias + shift)


def _shifts(
    samples: LayerSamples, activation: Activation | None, exact: torch.Tensor, result: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The shift of each channel that removes the error in each element of a batch, and its weight."""
    slope = torch.ones_like(result)
    if activation is not None:
        with torch.enable_grad():
            at = result.detach().clone().requires_grad_()
            value = activation(at * 1.0)  # some activations overwrite what they are called with
            (slope,) = torch.autograd.grad(value.sum(), at)
        exact, result = activation(exact.clone()), value.detach()
    error = exact - result
    passes = slope.isfinite() & error.isfinite()  # a logarithm of what is negative says nothing
    slope, error = torch.where(passes, slope, 0.0), torch.where(passes, error, 0.0)
    axis = samples.layer.axis(result.dim())

    def means(x: torch.Tensor) -> torch.Tensor:
        rows = x.double().movedim(axis, -1)
        return rows.reshape(rows.shape[0] if axis else 1, -1, rows.shape[-1]).mean(1)

    weights = means(slope * slope)
    return means(slope * error) / weights.clamp(min=1e-30), weights


def shrunk_mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted means of columns, each times the share of it that is not chance: m^2 / (m^2 + e^2), e its standard
    error. What a single one of several rows has a weight in may be chance as a whole.

    >>> shrunk_mean(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.ones(2, 2)).tolist()
    [1.0, 0.0]
    >>> shrunk_mean(torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0], [0.0]])).tolist()
    [0.0]
    """
    total = weights.sum(0).clamp(min=1e-30)
    mean = (weights * values).sum(0) / total
    if len(values) < 2:
        return mean
    rows = total.square() / weights.square().sum(0).clamp(min=1e-30)  # as many as had equal weights
    variance = (weights.square() * (values - mean).square()).sum(0) / total.square()
    error = variance * rows / (rows - 1).clamp(min=1e-9)
    found = mean * mean.square() / (mean.square() + error).clamp(min=1e-30)
    return torch.where(rows > 1 + 1e-6, found, 0.0)
