"""The networks that microcontrollers are measured with, after the kinds of MLPerf Tiny, with random weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import nn


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def ds_cnn() -> tuple[nn.Module, tuple[int, ...]]:
    """Keyword spotting: 49 frames of 10 MFCCs, four depthwise-separable blocks of 64 channels, 12 words."""
    stem = nn.Sequential(nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.ReLU())
    blocks = [nn.Sequential(_conv(64, 64, 3, groups=64), _conv(64, 64, 1)) for _ in range(4)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)), (1, 1, 49, 10)


def cifar_net() -> tuple[nn.Module, tuple[int, ...]]:
    """CMSIS-NN's example: three 5x5 convolutions with pooling, 10 classes of 32x32 images."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10)), (1, 3, 32, 32)


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [_conv(inputs, hidden, 1)] if expansion > 1 else []
        project = [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*expand, _conv(hidden, hidden, 3, stride, hidden), *project)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return x + y if self.residual else y


def mobilenet_v2(size: int = 96, classes: int = 2) -> tuple[nn.Module, tuple[int, ...]]:
    """MobileNetV2 of width 0.35, by default on 96x96 images, for visual wake words: two classes."""
    layers: list[nn.Module] = [_conv(3, 16, 3, 2)]
    inputs = 16
    table = ((1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 3, 2), (6, 24, 4, 2), (6, 32, 3, 1), (6, 56, 3, 2), (6, 112, 1, 1))
    for expansion, outputs, count, stride in table:
        for at in range(count):
            layers.append(_InvertedResidual(inputs, outputs, stride if at == 0 else 1, expansion))
            inputs = outputs
    tail = (_conv(inputs, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))
    return nn.Sequential(*layers, *tail), (1, 3, size, size)


def autoencoder() -> tuple[nn.Module, tuple[int, ...]]:
    """Anomaly detection: 640 mel values through a bottleneck of 8."""
    sizes = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640)), (1, 640)


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(10, 32, batch_first=True), nn.Linear(32, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def lstm() -> tuple[nn.Module, tuple[int, ...]]:
    """Gestures: 16 samples of 10 values, 32 hidden units, 6 classes; in float32, as gates are not quantized."""
    return _Lstm(), (1, 16, 10)


class Recurrent(nn.Module):
    """Steps whose operators have the same shapes, each with its own scales once they are quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(6, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.cell(x)[0][:, -1])
        return y


class FloatingPoint(nn.Module):
    """Float64 in many ways: exponential functions, angles, divisions, running sums, rows quantized as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        angles = torch.sin(40 * y) + torch.asin(torch.tanh(y)) * torch.cumsum(y, -1)
        return angles + torch.expm1(y) + torch.fmod(x[:, :12], 0.3) + torch.log1p(torch.abs(y))


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "ds_cnn": ds_cnn,
    "cifar_net": cifar_net,
    "mobilenet_v2": mobilenet_v2,
    "autoencoder": autoencoder,
    "lstm": lstm,
}


# Networks that others have published figures of, in other sizes than those above.
PUBLISHED: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "mobilenet_v2_128": lambda: mobilenet_v2(128, 5),  # of STMicroelectronics' model zoo, trained on flowers
}


def make(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network in evaluation mode, with batch norms that have seen data, and an input."""
    generator = torch.Generator().manual_seed(7)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        network, shape = (NETWORKS | PUBLISHED)[name]()
        network.train()
        with torch.no_grad():
            for _ in range(3):
                network(torch.randn((8, *shape[1:]), generator=generator))
    return network.eval(), torch.randn(shape, generator=generator)
