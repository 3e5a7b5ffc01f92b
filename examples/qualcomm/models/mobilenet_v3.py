"""MobileNetV3 (small). Weights go by torchvision's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# kernel, widened to, out, whether channels are weighed, hardswish instead of ReLU, stride
_PLAN = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1), (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip


def _layer(inside: int, out: int, kernel: int, stride: int, groups: int, act: nn.Module | None) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out, 0.001, 0.01), *([act] if act is not None else []))


class Weighed(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, (channels // 4 + 4) // 8 * 8)
        inner = inner + 8 if inner < 0.9 * channels / 4 else inner
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class Inverted(nn.Module):
    def __init__(self, inside: int, kernel: int, wide: int, out: int, weighed: bool, hard: bool, stride: int) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = [_layer(inside, wide, 1, 1, 1, act())] if wide != inside else []
        layers += [_layer(wide, wide, kernel, stride, wide, act()), *([Weighed(wide)] if weighed else [])]
        self.block = nn.Sequential(*layers, _layer(wide, out, 1, 1, 1, None))
        self.adds = stride == 1 and inside == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.adds else self.block(x)


class MobileNetV3(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_layer(3, 16, 3, 2, 1, nn.Hardswish())]
        inside = 16
        for kernel, wide, out, weighed, hard, stride in _PLAN:
            layers.append(Inverted(inside, kernel, wide, out, weighed, hard, stride))
            inside = out
        self.features = nn.Sequential(*layers, _layer(inside, 576, 1, 1, 1, nn.Hardswish()))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
