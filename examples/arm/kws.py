"""DS-CNN, a network for keyword spotting: 49 frames of 10 MFCCs to 12 words, as in MLPerf Tiny. Weights are random."""

from __future__ import annotations

import torch
from torch import nn

Calls = list[tuple[torch.Tensor, ...]]


class DsCnn(nn.Module):
    def __init__(self, channels: int = 64, words: int = 12, softmax: bool = True) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, (10, 4), 2, (5, 1)), nn.BatchNorm2d(channels), nn.ReLU())
        self.blocks = nn.Sequential(*(separable(channels) for _ in range(4)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, words)
        self.softmax = nn.Softmax(-1) if softmax else nn.Identity()

    def forward(self, mfcc: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.softmax(self.classifier(self.pool(self.blocks(self.stem(mfcc))).flatten(1)))
        return pooled


def separable(channels: int) -> nn.Sequential:
    depthwise = [nn.Conv2d(channels, channels, 3, 1, 1, groups=channels), nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*depthwise, nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU())


def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return DsCnn().eval(), (torch.randn(1, 1, 49, 10),)


def without_softmax() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return DsCnn(softmax=False).eval(), (torch.randn(1, 1, 49, 10),)


def data() -> Calls:
    """Stands for recordings: replace it with MFCCs of speech."""
    torch.manual_seed(1)
    return [(torch.randn(1, 1, 49, 10),) for _ in range(16)]
