"""Two small models for the tests of the tool, which run without the zoo's packages."""

from __future__ import annotations

import torch
from torch import nn

from tests.zoo.network import Network, draw_calls, images


def convolution() -> Network:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    return Network(layers.eval(), draw_calls("convolution", images(1, 3, 4, 4)), "4x4")


class Branching(nn.Module):
    """Cannot be captured: the way depends on the values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def branching() -> Network:
    return Network(Branching().eval(), draw_calls("branching", images(1, 3, 4, 4)))
