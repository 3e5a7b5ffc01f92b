"""A MobileNetV2 trained on CIFAR-10, images to calibrate and to test it with, and a way to count its successes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edgewright.frontend.safetensors import read_weights

DATA = Path(__file__).parents[1] / "data"
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _layer(inside: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
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


class MobileNet(nn.Module):
    """For images of 32 by 32 pixels; weights go by the names that torchvision gives them."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_layer(3, 32, 3)]
        width = 32
        for widen, out, count, stride in _STAGES:
            for index in range(count):
                layers.append(_Inverted(width, out, stride if index == 0 else 1, widen))
                width = out
        self.features = nn.Sequential(*layers, _layer(width, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


@cache
def mobilenet() -> nn.Module:
    model = MobileNet()
    model.load_state_dict(read_weights(DATA / "mv2_cifar10.safetensors"))
    return model.eval()


@cache
def _subset() -> dict[str, np.ndarray]:
    with np.load(DATA / "cifar10_subset.npz") as file:
        return {name: file[name] for name in file.files}


def _prepared(images: np.ndarray) -> Tensor:
    scaled = (images.astype(np.float32) / 255 - _MEAN) / _STD
    return torch.from_numpy(scaled.astype(np.float32).transpose(0, 3, 1, 2).copy())


def images(count: int) -> Tensor:
    return _prepared(_subset()["test_images"][:count])


def calibration(count: int = 64) -> Iterator[Tensor]:
    """Training images, one at a time."""
    yield from _prepared(_subset()["calibration_images"][:count]).split(1)


def accuracy(classify: Callable[[Tensor], Tensor], count: int) -> float:
    """The share of the first ``count`` test images that are classified rightly, in percent."""
    labels = torch.from_numpy(_subset()["test_labels"][:count].astype(np.int64))
    found = torch.cat([classify(x).reshape(1, -1).argmax(1) for x in images(count).split(1)])
    return 100.0 * float((found == labels).float().mean())
