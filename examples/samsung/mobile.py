"""MobileNet V2 and V3 (small), for images of 224 by 224 pixels."""

from __future__ import annotations

from collections.abc import Callable

from layers import Conv, Plus
from torch import Tensor, nn


def _v2_block(inside: int, out: int, stride: int, widen: int) -> nn.Module:
    wide = inside * widen
    first = [Conv(inside, wide, 1, act=nn.ReLU6)] if widen > 1 else []
    deep = Conv(wide, wide, 3, stride, 1, groups=wide, act=nn.ReLU6)
    block = nn.Sequential(*first, deep, Conv(wide, out, 1, act=None))
    return Plus(block) if stride == 1 and inside == out else block


class MobileNetV2(nn.Module):
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [Conv(3, 32, 3, 2, 1, act=nn.ReLU6)]
        width = 32
        for widen, out, count, stride in self.stages:
            for index in range(count):
                layers.append(_v2_block(width, out, stride if index == 0 else 1, widen))
                width = out
        self.features = nn.Sequential(*layers, Conv(width, 1280, 1, act=nn.ReLU6))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return made


class _Excitation(nn.Module):
    """Channels weighed by what all of the image says."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        said = nn.functional.adaptive_avg_pool2d(x, 1)
        return x * nn.functional.hardsigmoid(self.up(nn.functional.relu(self.down(said))))


def _eighth(value: float) -> int:
    whole = max(8, int(value + 4) // 8 * 8)
    return whole + 8 if whole < 0.9 * value else whole


def _v3_block(
    inside: int, kernel: int, wide: int, out: int, excites: bool, act: Callable[[], nn.Module], stride: int
) -> nn.Module:
    first = [Conv(inside, wide, 1, eps=1e-3, act=act)] if wide != inside else []
    deep = Conv(wide, wide, kernel, stride, kernel // 2, groups=wide, eps=1e-3, act=act)
    gate = [_Excitation(wide, _eighth(wide // 4))] if excites else []
    block = nn.Sequential(*first, deep, *gate, Conv(wide, out, 1, eps=1e-3, act=None))
    return Plus(block) if stride == 1 and inside == out else block


class MobileNetV3(nn.Module):
    # Window, channels within and of the result, squeeze and excitation, hard swish, step.
    stages = (
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
        (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
        (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
        (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [Conv(3, 16, 3, 2, 1, eps=1e-3, act=nn.Hardswish)]
        width = 16
        for kernel, wide, out, excites, hard, stride in self.stages:
            act: Callable[[], nn.Module] = nn.Hardswish if hard else nn.ReLU
            layers.append(_v3_block(width, kernel, wide, out, excites, act, stride))
            width = out
        self.features = nn.Sequential(*layers, Conv(width, 576, 1, eps=1e-3, act=nn.Hardswish))
        head = (nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, 1000))
        self.classifier = nn.Sequential(*head)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return made
