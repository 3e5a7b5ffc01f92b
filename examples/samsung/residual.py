"""ResNets, and DeepLab V3 on one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from layers import Conv, Plus
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


def _basic(inside: int, out: int, stride: int, dilation: int) -> tuple[nn.Module, int]:
    return nn.Sequential(Conv(inside, out, 3, stride, 1), Conv(out, out, 3, 1, 1, act=None)), out


def _bottleneck(inside: int, out: int, stride: int, dilation: int) -> tuple[nn.Module, int]:
    middle = Conv(out, out, 3, stride, dilation, dilation=dilation)
    return nn.Sequential(Conv(inside, out, 1), middle, Conv(out, 4 * out, 1, act=None)), 4 * out


def features(counts: Sequence[int], deep: bool, steps: Sequence[int], gaps: Sequence[int]) -> nn.Sequential:
    """The body of a ResNet; ``gaps``: of the windows, stage by stage."""
    layers: list[nn.Module] = [Conv(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    width, before = 64, 1
    for stage, (count, step, gap) in enumerate(zip(counts, steps, gaps, strict=True)):
        for index in range(count):
            stride, dilation = (step, before) if index == 0 else (1, gap)
            block, out = (_bottleneck if deep else _basic)(width, 64 << stage, stride, dilation)
            skip = Conv(width, out, 1, stride, act=None) if stride > 1 or width != out else None
            layers.append(Plus(block, skip, nn.ReLU()))
            width = out
        before = gap
    return nn.Sequential(*layers)


class ResNet(nn.Module):
    def __init__(self, counts: Sequence[int], deep: bool) -> None:
        super().__init__()
        self.features = features(counts, deep, (1, 2, 2, 2), (1, 1, 1, 1))
        self.head = nn.Linear(2048 if deep else 512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return made


class _Whole(nn.Module):
    """What the whole image says, everywhere."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.conv = Conv(inside, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        said = self.conv(F.adaptive_avg_pool2d(x, 1))
        return F.interpolate(said, size=x.shape[-2:], mode="bilinear", align_corners=False)


class DeepLabV3(nn.Module):
    """Classes of pixels, of images of 224 by 224."""

    def __init__(self) -> None:
        super().__init__()
        self.features = features((3, 4, 6, 3), True, (1, 2, 1, 1), (1, 1, 2, 4))
        wide = [Conv(2048, 256, 3, 1, gap, dilation=gap) for gap in (12, 24, 36)]
        self.views = nn.ModuleList([Conv(2048, 256, 1), *wide, _Whole(2048, 256)])
        self.join = nn.Sequential(Conv(1280, 256, 1), nn.Dropout(0.5), Conv(256, 256, 3, 1, 1))
        self.head = nn.Conv2d(256, 21, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x)
        y = self.head(self.join(torch.cat([view(y) for view in self.views], 1)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
