"""Learned rounding: each weight is rounded up or down, whichever leaves its layer's results nearest to the float
model's (Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", ICML 2020).

The error of a row of weights is quadratic in them: w G w - 2 w b, with G the products of the layer's inputs, as GPTQ
uses them, and b their products with the wanted results. Both are added up once, so that a step costs the same for any
amount of data. Each weight gets a variable between down (0) and up (1); gradient descent minimizes the error, while a
growing penalty moves the variables to the ends. What is learned is kept for the rows where it is better than rounding
to nearest; all others stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from edgewright.quantize.layer_walk import LayerSamples
from edgewright.quantize.layers import Layer, replace_tensor

_POSITIONS = 16384  # of a layer's results, over all inputs
_DAMPING = 0.01  # of the mean of G's diagonal; more where results are few for the number of weights
_STEPS = 200
_WORK = 3e10  # multiply-accumulates per layer, which bound the steps: seconds on one core
_LEAST_STEPS = 40
_WARM_UP = 0.2  # of the steps: without penalty
_RATE = 0.04
_PENALTY = 0.3  # relative to the error of rounding to nearest
_SHARPNESS = (20.0, 2.0)  # exponent of the penalty at its start and end
_STRETCH = (-0.1, 1.1)  # of the sigmoid, so that 0 and 1 are reached


@dataclass(frozen=True)
class Problem:
    """Rows of weights in units of their scales, by group: ``weights`` [groups, rows, columns], the products of inputs
    ``products`` [groups, columns, columns], and with the wanted results ``wanted`` [groups, rows, columns]."""

    weights: torch.Tensor
    products: torch.Tensor
    wanted: torch.Tensor

    def errors(self, integers: torch.Tensor) -> torch.Tensor:
        """The squared error of each row, without the constant part, which rounding does not change."""
        return ((integers @ self.products - 2 * self.wanted) * integers).sum(-1)


def learn_rounding(samples: LayerSamples) -> None:
    """Round the weights of a layer, on the grid of its observer. A layer in three dimensions or transposed, and one
    with a zero point, is rounded to nearest."""
    scale, zero, first, last, axis = samples.rounding
    weight = samples.weight
    if samples.layer.is_transposed or weight.dim() > 4 or bool(zero.any()) or axis not in (0, None):
        return
    by_row = scale.expand(weight.shape[0]).reshape(-1, *(1,) * (weight.dim() - 1))
    groups = samples.layer.groups
    problem = _problem(samples, (weight / by_row).reshape(groups, weight.shape[0] // groups, -1), by_row)
    rounded = round_rows(problem, first, last)
    replace_tensor(samples.layer.module, samples.layer.weight, rounded.reshape(weight.shape) * by_row)


def round_rows(problem: Problem, first: int, last: int) -> torch.Tensor:
    """The integers of every row: learned, where their error is less than that of the nearest ones."""
    nearest = torch.round(problem.weights).clamp(first, last)
    learned = _learn(problem, first, last)
    better = problem.errors(learned) < problem.errors(nearest)
    return torch.where(better[..., None], learned, nearest)


def _learn(problem: Problem, first: int, last: int) -> torch.Tensor:
    down = torch.floor(problem.weights)
    share = (problem.weights - down).clamp(0.01, 0.99)
    low, high = _STRETCH
    variables = torch.logit((share - low) / (high - low))
    nearest = torch.round(problem.weights).clamp(first, last)
    # The error above that of weights that are not rounded; rows of any size count the same.
    unit = (problem.errors(nearest) - problem.errors(problem.weights)).abs().clamp(min=1e-12)[..., None]
    mean, square = torch.zeros_like(variables), torch.zeros_like(variables)
    rows, columns = problem.weights.shape[0] * problem.weights.shape[1], problem.weights.shape[2]
    steps = max(_LEAST_STEPS, min(_STEPS, int(_WORK / (rows * columns * columns))))
    for step in range(1, steps + 1):
        sigmoid = torch.sigmoid(variables)
        up = (sigmoid * (high - low) + low).clamp(0, 1)
        slope = torch.where((up > 0) & (up < 1), sigmoid * (1 - sigmoid) * (high - low), 0.0)
        weights = (down + up).clamp(first, last)
        gradient = 2 * (weights @ problem.products - problem.wanted) / unit
        progress = (step / steps - _WARM_UP) / (1 - _WARM_UP)
        if progress > 0:
            sharpness = _SHARPNESS[1] + (_SHARPNESS[0] - _SHARPNESS[1]) * (1 + math.cos(math.pi * progress)) / 2
            offset = 2 * up - 1  # the penalty is 1 - |offset| ** sharpness
            gradient -= _PENALTY / columns * 2 * sharpness * offset.abs().pow(sharpness - 1) * offset.sign()
        gradient = gradient * slope
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient.square()
        corrected = mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-12)
        variables = variables - _RATE * corrected
    up = torch.sigmoid(variables) * (high - low) + low
    return (down + (up >= 0.5)).clamp(first, last)


# ---------------------------------------------------------------------------------------------------------- statistics


def _problem(samples: LayerSamples, weights: torch.Tensor, by_row: torch.Tensor) -> Problem:
    """The quadratic problem of a layer. Results that the calibration data hardly determines stay near the weights."""
    layer, (groups, rows, columns) = samples.layer, weights.shape
    products = torch.zeros(groups, columns, columns, dtype=torch.float64)
    wanted = torch.zeros(groups, rows, columns, dtype=torch.float64)
    input_sum, count = torch.zeros(groups, columns, dtype=torch.float64), 0
    most = max(1, _POSITIONS // len(samples.inputs))
    for x, exact in zip(samples.inputs, samples.exact, strict=True):
        patches = _patches(layer, x, samples.weight)  # [groups * columns, positions]
        results = exact.movedim(layer.axis(exact.dim()), 0).flatten(1)
        positions = torch.linspace(0, results.shape[1] - 1, min(most, results.shape[1])).long()
        a = patches[:, positions].reshape(groups, columns, -1)
        b = results[:, positions].reshape(groups, rows, -1)
        products += (a @ a.mT).double()
        wanted += (b @ a.mT).double()
        input_sum += a.double().sum(-1)
        count += len(positions)
    bias = samples.bias
    if bias is not None:
        shift = bias.double().reshape(groups, rows)
        wanted -= shift[..., None] * input_sum[:, None]
    diagonal = products.diagonal(dim1=-2, dim2=-1).mean(-1)
    damping = diagonal.clamp(min=1e-12) * max(_DAMPING, columns / count)
    products += damping[:, None, None] * torch.eye(columns, dtype=torch.float64)
    exact_weights = weights.double() * by_row.reshape(groups, rows, 1)
    wanted += damping[:, None, None] * exact_weights
    unit = damping[:, None, None]
    return Problem(weights, (products / unit).float(), (wanted / unit / by_row.reshape(groups, rows, 1)).float())


def _patches(layer: Layer, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What each result reads: [groups * columns, positions]."""
    if layer.is_linear:
        return x.reshape(-1, x.shape[-1]).t()
    rank = weight.dim() - 2
    x = x if x.dim() == weight.dim() else x[None]
    stride, padding, dilation = _window(layer, rank)
    if isinstance(padding, str):
        padding = _same_padding(weight, dilation) if padding == "same" else [(0, 0)] * rank
    pad = [size for pair in reversed(padding) for size in pair]
    x = torch.nn.functional.pad(x, pad)
    if rank == 1:
        x, kernel = x[..., None, :], (1, weight.shape[2])
        stride, dilation = [1, *stride], [1, *dilation]
    else:
        kernel = (int(weight.shape[2]), int(weight.shape[3]))
    return torch.nn.functional.unfold(x, kernel, tuple(dilation), 0, tuple(stride)).transpose(0, 1).flatten(1)


def _window(layer: Layer, rank: int) -> tuple[list[int], Any, list[int]]:
    values = [*layer.node.args[3:6]]
    named = [layer.node.kwargs.get(name) for name in ("stride", "padding", "dilation")]
    stride, padding, dilation = (
        values[i] if i < len(values) else (named[i] if named[i] is not None else default)
        for i, default in enumerate((1, 0, 1))
    )
    sizes = padding if isinstance(padding, str) else [(p, p) for p in _spread(padding, rank)]
    return _spread(stride, rank), sizes, _spread(dilation, rank)


def _spread(value: Any, rank: int) -> list[int]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    return [int(v) for v in (values if len(values) == rank else values * rank)]


def _same_padding(weight: torch.Tensor, dilation: list[int]) -> list[tuple[int, int]]:
    totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    return [(total // 2, total - total // 2) for total in totals]
