"""Idioms: layers and how they share what they read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.workbench.idioms import draws, idiom

_LENGTH = torch.export.Dim("length", min=2, max=16)
_ALL = ("xnnpack/float", "xnnpack/int8", "xnnpack/dynamic")


@idiom(draws((1, 4, 32)), "xnnpack/dynamic")
class LayersInTwoGroups(nn.Module):
    """Two layers of one tensor, with an operator between them that no delegate takes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.skip = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x)
        gated = torch.relu(self.up(x) * torch.cumsum(self.gate(x), 1))
        return gated + self.skip(x)


@idiom(draws((1, 3, 8, 8)), "xnnpack/dynamic")
class ConvolutionsInTwoGroups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.skip = (nn.Conv2d(3, 8, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x)
        gated = torch.relu(self.up(x) * torch.cumsum(self.gate(x), 1))
        return gated + self.skip(x)


@idiom(draws((1, 6, 16)), *_ALL, "imxrt700/int8", shapes=({1: _LENGTH},))
class NormOfLastToken(nn.Module):
    """What generators do before the head: strides of the last token depend on the length, its shape does not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x[:, -1:]))
