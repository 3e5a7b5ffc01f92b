"""Networks that Ethos-U targets are measured with: random weights, the same every time."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.backends.networks import MobileNetV3
from tests.program.networks import CifarNet, MobileNetV2, ResNet18, conv_norm

Made = tuple[nn.Module, tuple[Any, ...]]


class DSCNN(nn.Module):
    """Keyword spotting: depthwise separable convolutions over a spectrogram."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU())
        layers = [(*conv_norm(64, 64, 3, 1, 64), nn.ReLU(), *conv_norm(64, 64, 1), nn.ReLU()) for _ in range(4)]
        self.blocks = nn.Sequential(*(layer for block in layers for layer in block))
        self.head = nn.Linear(64, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.avg_pool2d(self.blocks(self.stem(x)), (24, 5)).flatten(1)).softmax(-1)


class Autoencoder(nn.Module):
    """Anomaly detection in sound: linear layers down to eight numbers and back."""

    def __init__(self) -> None:
        super().__init__()
        widths = [640, 128, 128, 8, 128, 128]
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(128, 640))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0's kind of blocks: inverted residuals with ReLU6, windows of 3 and 5."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(3, 32, 3, 2), nn.ReLU6())
        self.first = nn.Sequential(*conv_norm(32, 32, 3, 1, 32), nn.ReLU6(), *conv_norm(32, 16, 1))
        self.second = self._block(16, 24, 3, 2)
        self.third = self._block(24, 24, 3, 1)
        self.fourth = self._block(24, 40, 5, 2)
        self.fifth = self._block(40, 40, 5, 1)
        self.head = nn.Sequential(*conv_norm(40, 128, 1), nn.ReLU6())
        self.classes = nn.Linear(128, 10)

    @staticmethod
    def _block(inside: int, out: int, kernel: int, stride: int) -> nn.Sequential:
        wide = inside * 6
        return nn.Sequential(*conv_norm(inside, wide, 1), nn.ReLU6(), *conv_norm(wide, wide, kernel, stride, wide),
                             nn.ReLU6(), *conv_norm(wide, out, 1))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(self.stem(x)))
        x = self.fourth(x + self.third(x))
        x = self.head(x + self.fifth(x))
        return self.classes(x.mean((2, 3)))


def lively(model: nn.Module, inputs: tuple[Tensor, ...]) -> Made:
    """A model in whose batch norms something happens, ready to be exported."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.3, 0.8)  # type: ignore[arg-type]
            nn.init.normal_(module.running_mean, 0, 0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.weight, 0.7, 1.3)
    return model.eval(), inputs


def mobilenet(last: bool = True, size: int = 224) -> Made:
    torch.manual_seed(0)
    order = torch.channels_last if last else torch.contiguous_format
    return lively(MobileNetV2(), (torch.randn(1, 3, size, size).to(memory_format=order),))


def _seeded(kind: type[nn.Module], *shape: int) -> Made:
    torch.manual_seed(0)
    return lively(kind(), (torch.randn(shape),))


NETWORKS = {
    "cifarnet": lambda: _seeded(CifarNet, 1, 3, 32, 32),
    "mobilenet_v2": lambda: mobilenet(size=96),
    "mobilenet_v3": lambda: _seeded(MobileNetV3, 1, 3, 64, 64),
    "resnet18": lambda: _seeded(ResNet18, 1, 3, 64, 64),
    "ds_cnn": lambda: _seeded(DSCNN, 1, 1, 49, 10),
    "autoencoder": lambda: _seeded(Autoencoder, 1, 640),
    "efficientnet_lite": lambda: _seeded(EfficientNetLite, 1, 3, 64, 64),
}
