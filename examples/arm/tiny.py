"""A small network with example inputs, for trying the flow: ``-m tiny:make``."""

from __future__ import annotations

import torch


class Tiny(torch.nn.Module):
    """A depthwise-separable image classifier of 32x32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2, 1),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU6(),
            torch.nn.Conv2d(16, 16, 3, 1, 1, groups=16),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU6(),
            torch.nn.Conv2d(16, 32, 1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


def make() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Tiny().eval(), (torch.randn(1, 3, 32, 32),)
