"""Inception v4. Weights go by timm's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Kernel = int | tuple[int, int]


class Conv(nn.Module):
    def __init__(self, inside: int, out: int, kernel: Kernel = 1, stride: int = 1, same: bool = False) -> None:
        super().__init__()
        sizes = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (sizes[0] // 2, sizes[1] // 2) if same else 0
        self.conv, self.bn = nn.Conv2d(inside, out, kernel, stride, padding, bias=False), nn.BatchNorm2d(out, 0.001)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


def _same(inside: int, out: int, kernel: Kernel = 1) -> Conv:
    return Conv(inside, out, kernel, 1, True)


class Joined(nn.Module):
    """Branches of the same image, side by side."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.children()], 1)


def _mean() -> nn.AvgPool2d:
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)


def _mixed_4a() -> Joined:
    long = [Conv(160, 64), _same(64, 64, (1, 7)), _same(64, 64, (7, 1)), Conv(64, 96, 3)]
    return Joined(branch0=nn.Sequential(Conv(160, 64), Conv(64, 96, 3)), branch1=nn.Sequential(*long))


def _a() -> Joined:
    return Joined(
        branch0=Conv(384, 96), branch1=nn.Sequential(Conv(384, 64), _same(64, 96, 3)),
        branch2=nn.Sequential(Conv(384, 64), _same(64, 96, 3), _same(96, 96, 3)),
        branch3=nn.Sequential(_mean(), Conv(384, 96)),
    )  # fmt: skip


def _reduction_a() -> Joined:
    long = nn.Sequential(Conv(384, 192), _same(192, 224, 3), Conv(224, 256, 3, 2))
    return Joined(branch0=Conv(384, 384, 3, 2), branch1=long, branch2=nn.MaxPool2d(3, 2))


def _b() -> Joined:
    tall = [Conv(1024, 192), _same(192, 192, (7, 1)), _same(192, 224, (1, 7)), _same(224, 224, (7, 1)),
            _same(224, 256, (1, 7))]  # fmt: skip
    return Joined(
        branch0=Conv(1024, 384),
        branch1=nn.Sequential(Conv(1024, 192), _same(192, 224, (1, 7)), _same(224, 256, (7, 1))),
        branch2=nn.Sequential(*tall), branch3=nn.Sequential(_mean(), Conv(1024, 128)),
    )  # fmt: skip


def _reduction_b() -> Joined:
    long = [Conv(1024, 256), _same(256, 256, (1, 7)), _same(256, 320, (7, 1)), Conv(320, 320, 3, 2)]
    short = nn.Sequential(Conv(1024, 192), Conv(192, 192, 3, 2))
    return Joined(branch0=short, branch1=nn.Sequential(*long), branch2=nn.MaxPool2d(3, 2))


class InceptionC(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch0, self.branch1_0 = Conv(1536, 256), Conv(1536, 384)
        self.branch1_1a, self.branch1_1b = _same(384, 256, (1, 3)), _same(384, 256, (3, 1))
        self.branch2_0, self.branch2_1, self.branch2_2 = (
            Conv(1536, 384),
            _same(384, 448, (3, 1)),
            _same(448, 512, (1, 3)),
        )
        self.branch2_3a, self.branch2_3b = _same(512, 256, (1, 3)), _same(512, 256, (3, 1))
        self.branch3 = nn.Sequential(_mean(), Conv(1536, 256))

    def forward(self, x: Tensor) -> Tensor:
        single, double = self.branch1_0(x), self.branch2_2(self.branch2_1(self.branch2_0(x)))
        parts = [self.branch1_1a(single), self.branch1_1b(single), self.branch2_3a(double), self.branch2_3b(double)]
        return torch.cat([self.branch0(x), *parts, self.branch3(x)], 1)


class InceptionV4(nn.Module):
    """For images of 299 by 299 pixels."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            Conv(3, 32, 3, 2), Conv(32, 32, 3), _same(32, 64, 3),
            Joined(maxpool=nn.MaxPool2d(3, 2), conv=Conv(64, 96, 3, 2)), _mixed_4a(),
            Joined(conv=Conv(192, 192, 3, 2), maxpool=nn.MaxPool2d(3, 2)),
            *(_a() for _ in range(4)), _reduction_a(), *(_b() for _ in range(7)), _reduction_b(),
            *(InceptionC() for _ in range(3)),
        )  # fmt: skip
        self.global_pool, self.last_linear = nn.AdaptiveAvgPool2d(1), nn.Linear(1536, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last_linear(torch.flatten(self.global_pool(self.features(x)), 1))
