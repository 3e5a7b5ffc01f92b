"""Networks of images that are measured and that no library here has: a U-Net, YOLOv8's graph, and super-resolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, act: type[nn.Module] = nn.SiLU) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act())


class UNet(nn.Module):
    """Ronneberger et al., 2015, with batch norms and 16 channels at full resolution."""

    def __init__(self, width: int = 16, levels: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(self._double(a, b) for a, b in zip([3, *widths], widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(self._double(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(width, 2, 1)

    def _double(self, inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(_conv(inputs, outputs, act=nn.ReLU), _conv(outputs, outputs, act=nn.ReLU))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for layer in self.down[:-1]:
            skips.append(layer(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


class SplitBlock(nn.Module):
    """YOLOv8's C2f: a chain of bottlenecks, of which every result is part of the concatenation."""

    def __init__(self, inputs: int, outputs: int, depth: int, residual: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.enter, self.leave = _conv(inputs, outputs, 1), _conv((2 + depth) * half, outputs, 1)
        self.chain = nn.ModuleList(nn.Sequential(_conv(half, half), _conv(half, half)) for _ in range(depth))
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.chain:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.leave(torch.cat(parts, 1))


class PooledPyramid(nn.Module):
    """YOLOv8's SPPF: three max pools, one after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = _conv(width, width // 2, 1), _conv(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Yolo(nn.Module):
    """The graph of YOLOv8n (Ultralytics) up to the maps of its heads, concatenated over all cells."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        w = (16, 32, 64, 128, 256)
        self.stem = nn.Sequential(_conv(3, w[0], 3, 2), _conv(w[0], w[1], 3, 2), SplitBlock(w[1], w[1], 1, True))
        self.p3 = nn.Sequential(_conv(w[1], w[2], 3, 2), SplitBlock(w[2], w[2], 2, True))
        self.p4 = nn.Sequential(_conv(w[2], w[3], 3, 2), SplitBlock(w[3], w[3], 2, True))
        deep = SplitBlock(w[4], w[4], 1, True), PooledPyramid(w[4])
        self.p5 = nn.Sequential(_conv(w[3], w[4], 3, 2), *deep)
        self.up4 = SplitBlock(w[4] + w[3], w[3], 1, False)
        self.up3 = SplitBlock(w[3] + w[2], w[2], 1, False)
        self.to4, self.down4 = _conv(w[2], w[2], 3, 2), SplitBlock(w[2] + w[3], w[3], 1, False)
        self.to5, self.down5 = _conv(w[3], w[3], 3, 2), SplitBlock(w[3] + w[4], w[4], 1, False)
        self.boxes = nn.ModuleList(self._head(width, 64, 64) for width in w[2:])
        self.classes = nn.ModuleList(self._head(width, 80, classes) for width in w[2:])

    def _head(self, inputs: int, width: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(_conv(inputs, width), _conv(width, width), nn.Conv2d(width, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.up4(torch.cat([F.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([F.interpolate(n4, scale_factor=2.0), p3], 1))
        n4 = self.down4(torch.cat([self.to4(n3), n4], 1))
        n5 = self.down5(torch.cat([self.to5(n4), p5], 1))
        maps = zip((n3, n4, n5), self.boxes, self.classes, strict=True)
        return torch.cat([torch.cat([box(n), label(n)], 1).flatten(2) for n, box, label in maps], 2)


class Espcn(nn.Sequential):
    """Shi et al., 2016: super-resolution by a factor of three."""

    def __init__(self) -> None:
        layers = nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh()
        super().__init__(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))
