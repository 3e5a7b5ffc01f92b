"""Inception v3, without the head that only training uses. Weights go by torchvision's names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d


class Conv(nn.Module):
    """``kernel`` and ``padding`` may be for height and width."""

    def __init__(self, inside: int, out: int, kernel: int | tuple[int, int] = 1, stride: int = 1) -> None:
        super().__init__()
        same = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = tuple(k // 2 for k in same) if stride == 1 else 0
        self.conv, self.bn = nn.Conv2d(inside, out, kernel, stride, padding, bias=False), nn.BatchNorm2d(out, 0.001)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


class Plain(Conv):
    """Not padded."""

    def __init__(self, inside: int, out: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inside, out, kernel, stride)
        self.conv.padding = (0, 0)


def _mean(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, 1, 1)


class InceptionA(nn.Module):
    def __init__(self, inside: int, pooled: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inside, 64)
        self.branch5x5_1, self.branch5x5_2 = Conv(inside, 48), Conv(48, 64, 5)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inside, 64), Conv(64, 96, 3)
        self.branch3x3dbl_3, self.branch_pool = Conv(96, 96, 3), Conv(inside, pooled)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat(
            [self.branch1x1(x), self.branch5x5_2(self.branch5x5_1(x)), double, self.branch_pool(_mean(x))], 1
        )


class InceptionB(nn.Module):
    def __init__(self, inside: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(inside, 384, 3, 2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inside, 64), Conv(64, 96, 3)
        self.branch3x3dbl_3 = Conv(96, 96, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, max_pool2d(x, 3, 2)], 1)


class InceptionC(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.branch1x1, self.branch_pool = Conv(768, 192), Conv(768, 192)
        for index, (a, b, k) in enumerate(((768, width, 1), (width, width, (1, 7)), (width, 192, (7, 1))), 1):
            setattr(self, f"branch7x7_{index}", Conv(a, b, k))
        tall = (
            (768, width, 1),
            (width, width, (7, 1)),
            (width, width, (1, 7)),
            (width, width, (7, 1)),
            (width, 192, (1, 7)),
        )
        for index, (a, b, k) in enumerate(tall, 1):
            setattr(self, f"branch7x7dbl_{index}", Conv(a, b, k))

    def forward(self, x: Tensor) -> Tensor:
        single, double = x, x
        for index in range(1, 4):
            single = getattr(self, f"branch7x7_{index}")(single)
        for index in range(1, 6):
            double = getattr(self, f"branch7x7dbl_{index}")(double)
        return torch.cat([self.branch1x1(x), single, double, self.branch_pool(_mean(x))], 1)


class InceptionD(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = Conv(768, 192), Conv(192, 320, 3, 2)
        self.branch7x7x3_1, self.branch7x7x3_2 = Conv(768, 192), Conv(192, 192, (1, 7))
        self.branch7x7x3_3, self.branch7x7x3_4 = Conv(192, 192, (7, 1)), Conv(192, 192, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        long = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat([self.branch3x3_2(self.branch3x3_1(x)), long, max_pool2d(x, 3, 2)], 1)


class InceptionE(nn.Module):
    def __init__(self, inside: int) -> None:
        super().__init__()
        self.branch1x1, self.branch_pool = Conv(inside, 320), Conv(inside, 192)
        self.branch3x3_1, self.branch3x3_2a, self.branch3x3_2b = (
            Conv(inside, 384),
            Conv(384, 384, (1, 3)),
            Conv(384, 384, (3, 1)),
        )
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inside, 448), Conv(448, 384, 3)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = Conv(384, 384, (1, 3)), Conv(384, 384, (3, 1))

    def forward(self, x: Tensor) -> Tensor:
        single, double = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        parts = [self.branch3x3_2a(single), self.branch3x3_2b(single)]
        parts += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double)]
        return torch.cat([self.branch1x1(x), *parts, self.branch_pool(_mean(x))], 1)


class InceptionV3(nn.Module):
    """For images of 299 by 299 pixels."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Plain(3, 32, 3, 2), Plain(32, 32, 3)
        self.Conv2d_2b_3x3, self.maxpool1 = Conv(32, 64, 3), nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3, self.maxpool2 = Plain(64, 80, 1), Plain(80, 192, 3), nn.MaxPool2d(3, 2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = InceptionA(192, 32), InceptionA(256, 64), InceptionA(288, 64)
        self.Mixed_6a = InceptionB(288)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = map(InceptionC, (128, 160, 160, 192))
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = InceptionD(), InceptionE(1280), InceptionE(2048)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        for name, layer in self.named_children():
            if name != "fc":
                x = layer(x)
        return self.fc(torch.flatten(x, 1))
