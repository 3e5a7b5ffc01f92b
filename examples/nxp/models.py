"""The networks that NXP's documentation names, with example inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from edgewright.demo.model import cifarnet

Made = tuple[nn.Module, tuple[Tensor, ...]]


def _layer(inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6())


class _Inverted(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = inside * widen
        first = [_layer(inside, wide, 1)] if widen > 1 else []
        last = [nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.conv = nn.Sequential(*first, _layer(wide, wide, 3, stride, wide), *last)
        self.adds = stride == 1 and inside == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """For images of 224 by 224 pixels; weights go by torchvision's names."""

    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_layer(3, 32, 3, 2)]
        width = 32
        for widen, out, count, stride in self.stages:
            for index in range(count):
                layers.append(_Inverted(width, out, stride if index == 0 else 1, widen))
                width = out
        self.features = nn.Sequential(*layers, _layer(width, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class _Block(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Conv2d(inside, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)) + self.skip(x))


class ResNet8(nn.Module):
    """MLPerf Tiny's image classification."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(_Block(16, 16, 1), _Block(16, 32, 2), _Block(32, 64, 2))
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.avg_pool2d(self.blocks(self.stem(x)), 8)
        return torch.softmax(self.last(x.flatten(1)), 1)


MODELS: dict[str, Callable[[], Made]] = {
    "cifar10": lambda: (nn.Sequential(cifarnet(), nn.Softmax(1)), (torch.randn(1, 3, 32, 32),)),
    "mobilenetv2": lambda: (MobileNetV2(), (torch.randn(1, 3, 224, 224),)),
    "mlperf_tiny_image_classification": lambda: (ResNet8(), (torch.randn(1, 3, 32, 32),)),
}
TRAINED = {"cifar10"}  # the weights of the others are random
