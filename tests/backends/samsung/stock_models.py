"""Small models that stock's software lowers too, for graphs that are compared with its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Inverted(nn.Module):
    """An inverted residual, a mean and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.last(self.deep(x))
        made: torch.Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return made


class Pyramid(nn.Module):
    """Pools, resizing and concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=2, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        a = F.max_pool2d(x, 2)
        b = F.avg_pool2d(x, 3, 2, 1)
        y = torch.cat([a, b], 1)
        y = F.interpolate(y, size=(8, 8), mode="bilinear")
        return F.pixel_shuffle(y, 2)


class Gate(nn.Module):
    """Squeeze and excitation with the hard functions, and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = F.hardsigmoid(self.b(torch.relu(self.a(x.mean((2, 3), keepdim=True)))))
        return F.hardswish(x * gate) * 0.5 - 0.25


class Attention(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv, self.out, self.up = (nn.Linear(8, n) for n in (24, 8, 16))
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.qkv(self.norm(x)).reshape(1, 6, 3, 2, 4).permute(2, 0, 3, 1, 4).select(0, i) for i in range(3))
        y = torch.softmax(torch.matmul(q * 0.5, k.transpose(-1, -2)), -1)
        y = self.out(torch.matmul(y, v).transpose(1, 2).reshape(1, 6, 8)) + x
        made: torch.Tensor = y + self.down(F.gelu(self.up(y)))
        return made


class Moves(nn.Module):
    """Movement, a sequence, a transposed convolution; two results."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.back = nn.Conv1d(4, 4, 3, padding=1), nn.ConvTranspose2d(4, 3, 2, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.flat(x))
        z = F.pad(y.unsqueeze(2)[:, :, :, 1:7:2], (1, 1, 0, 0)).expand(1, 4, 2, 5)
        return self.back(z), y.permute(0, 2, 1).squeeze(0)


class Functions(nn.Module):
    """Functions of one number and two, and norms: real numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.slope = nn.GroupNorm(2, 4), nn.PReLU(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sqrt(x * x + 1.0)
        y = torch.rsqrt(y) + torch.log(y) + torch.sin(x) * torch.cos(x)
        y = torch.maximum(y, torch.tanh(x)) - torch.minimum(x, torch.sigmoid(x)) / y
        y = torch.clamp(F.leaky_relu(y, 0.1), max=2.0) + self.slope(x) ** 2.0
        return torch.log_softmax(self.norm(y).sum((2, 3)), -1)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "inverted": (Inverted, ((1, 3, 8, 8),)),
    "pyramid": (Pyramid, ((1, 3, 8, 8),)),
    "gate": (Gate, ((1, 4, 6, 6),)),
    "attention": (Attention, ((1, 6, 8),)),
    "moves": (Moves, ((1, 4, 8),)),
    "functions": (Functions, ((1, 4, 4, 4),)),
}
QUANTIZED = ("inverted", "pyramid", "gate", "attention")


def make(name: str) -> Made:
    torch.manual_seed(0)
    factory, shapes = MODELS[name]
    model = factory().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()  # type: ignore[union-attr]
    return model, tuple(torch.randn(shape) for shape in shapes)


def calibration(inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    torch.manual_seed(1)
    return [inputs, *(tuple(torch.randn_like(x) for x in inputs) for _ in range(3))]
