"""Pictures of shapes in the colours of their classes, and a classifier's last layer that is fitted to them.

Networks with random weights are sure of nothing: most of their pixels are ties, which a step of 8 bits decides. Fitted
in closed form on features of the random network, the last layer gives pixels that are of one class and no other.
"""

from __future__ import annotations

import colorsys

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, one_hot

SHAPES = 4  # in a picture
_NOISE = 0.05
_RIDGE = 0.1  # of the features' mean square: keeps weights small where features say little


def palette(classes: int) -> Tensor:
    """A colour for each class, as far apart as hues and two depths are; the first is the background's."""
    hues = [colorsys.hsv_to_rgb(i / (classes - 1), 1.0, 1.0 if i % 2 else 0.55) for i in range(classes - 1)]
    return torch.tensor([(0.5, 0.5, 0.5), *hues]) * 4 - 2


def pictures(count: int, size: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images [count, 3, size, size] of rectangles and discs, and the class of each pixel."""
    generator = torch.Generator().manual_seed(seed)
    down, right = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    labels = torch.zeros(count, size, size, dtype=torch.long)
    for number in range(count):
        for index in range(SHAPES):
            y, x = (int(torch.randint(size, (1,), generator=generator)) for _ in range(2))
            reach = size // 8 + int(torch.randint(size // 5, (1,), generator=generator))
            across, along = (right - x).abs(), (down - y).abs()
            inside = across**2 + along**2 < reach**2 if index % 2 else torch.maximum(across, along) < reach
            labels[number][inside] = 1 + int(torch.randint(classes - 1, (1,), generator=generator))
    images = palette(classes)[labels].permute(0, 3, 1, 2)
    return (images + _NOISE * torch.randn(images.shape, generator=generator)).contiguous(), labels


def fit(last: nn.Conv2d, features: Tensor, labels: Tensor, steepness: float = 8.0) -> None:
    """Give a layer of one pixel the weights whose scores are nearest to ``steepness`` for a pixel's class and to zero
    for the others, by least squares."""
    classes, channels = last.out_channels, features.shape[1]
    small = interpolate(labels[:, None].float(), features.shape[-2:], mode="nearest").long()[:, 0]
    rows = features.permute(0, 2, 3, 1).reshape(-1, channels).double()
    mean = rows.mean(0)
    wanted = steepness * one_hot(small.reshape(-1), classes).double()
    centred = rows - mean
    square = centred.T @ centred
    square += _RIDGE * square.diagonal().mean() * torch.eye(channels, dtype=torch.float64)
    weights = torch.linalg.solve(square, centred.T @ (wanted - wanted.mean(0)))
    with torch.no_grad():
        last.weight.copy_(weights.T.reshape(last.weight.shape))
        assert last.bias is not None
        last.bias.copy_(wanted.mean(0) - mean @ weights)


def inputs_of(layer: nn.Module, model: nn.Module, images: Tensor) -> Tensor:
    """What a layer of a model is given for images, one after the other."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        for image in images.split(1):
            model(image)
    handle.remove()
    return torch.cat(seen)
