"""A small network with modules in modules, data, and metrics, as a user's file has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Block(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside: torch.Tensor = self.second(self.first(x).relu())
        return inside + x


class Small(torch.nn.Module):
    """A stem that is sensitive to rounding, a block, and a layer outside of any other module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.block = Block(32)
        self.head = torch.nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(self.block(self.stem(x).relu()), 2)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.zeros(1, 1, 8, 8),)


def small() -> Small:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = Small()
    with torch.no_grad():
        model.stem.weight[0] *= 40  # one scale for all channels' results would serve none
    return model.eval()


def data(count: int = 24) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, 1, 8, 8, generator=draw) for _ in range(count)]


def error(model: Any) -> float:
    """How far a model is from the original, on inputs that are not in the calibration data: lower is better."""
    draw, original, total = torch.Generator().manual_seed(4), small(), 0.0
    for _ in range(4):
        x = torch.randn(1, 1, 8, 8, generator=draw)
        with torch.no_grad():
            expected = original(x).numpy()
        total += float(np.square(np.asarray(model(x)) - expected).sum() / np.square(expected).sum())
    return 1.0 + total


def raising(model: Any) -> float:
    return {}["no such label"]  # type: ignore[no-any-return]
