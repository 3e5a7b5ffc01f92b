"""DeepLabV3 on ResNet-101: what every pixel of an image is. Weights go by torchvision's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate


def _layer(inside: int, out: int, kernel: int, dilation: int = 1) -> list[nn.Module]:
    padding = dilation if kernel == 3 else 0
    conv = nn.Conv2d(inside, out, kernel, padding=padding, dilation=dilation, bias=False)
    return [conv, nn.BatchNorm2d(out), nn.ReLU()]


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        nn.init.constant_(self.bn3.weight, 0.2)  # branches add little at first: else noise grows from block to block
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        made = self.relu(self.bn1(self.conv1(x)))
        made = self.relu(self.bn2(self.conv2(made)))
        made = self.bn3(self.conv3(made))
        return self.relu(made + (x if self.downsample is None else self.downsample(x)))


class Backbone(nn.Module):
    """A ResNet whose last stages see farther instead of shrinking the image."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        inside = 64
        plans = ((64, 1, 1, 1), (128, 2, 1, 1), (256, 1, 1, 2), (512, 1, 2, 4))  # width, stride, first and other gaps
        for index, (count, (width, stride, first, rest)) in enumerate(zip(counts, plans, strict=True), 1):
            blocks = []
            for i in range(count):
                blocks.append(Bottleneck(inside, width, stride if i == 0 else 1, first if i == 0 else rest))
                inside = 4 * width
            setattr(self, f"layer{index}", nn.Sequential(*blocks))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        third = self.layer3(self.layer2(self.layer1(x)))
        return self.layer4(third), third


class Pooling(nn.Sequential):
    """What the whole image is like, at every pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return interpolate(super().forward(x), size=x.shape[-2:], mode="bilinear", align_corners=False)


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        near = [nn.Sequential(*_layer(2048, 256, 1))]
        far = [nn.Sequential(*_layer(2048, 256, 3, gap)) for gap in (12, 24, 36)]
        whole = Pooling(nn.AdaptiveAvgPool2d(1), *_layer(2048, 256, 1))
        self.convs = nn.ModuleList([*near, *far, whole])
        self.project = nn.Sequential(*_layer(5 * 256, 256, 1), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(torch.cat([conv(x) for conv in self.convs], 1))


class DeepLabV3(nn.Module):
    """Gives scores for 21 classes, and those of the auxiliary head that it was trained with."""

    def __init__(self, counts: tuple[int, ...] = (3, 4, 23, 3), classes: int = 21) -> None:
        super().__init__()
        self.backbone = Backbone(counts)
        self.classifier = nn.Sequential(Pyramid(), *_layer(256, 256, 3), nn.Conv2d(256, classes, 1))
        self.aux_classifier = nn.Sequential(*_layer(1024, 256, 3), nn.Dropout(0.1), nn.Conv2d(256, classes, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        last, third = self.backbone(x)
        made = (self.classifier(last), self.aux_classifier(third))
        first, second = (interpolate(m, size=x.shape[-2:], mode="bilinear", align_corners=False) for m in made)
        return first, second
