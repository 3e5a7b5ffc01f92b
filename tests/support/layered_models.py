"""Small networks in modules: a MobileNetV2 and a transformer, for what shows names of layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 2 * inputs
        self.residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            conv_bn(inputs, wide, 1), conv_bn(wide, wide, 3, stride, wide), nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.residual else self.conv(x)


class Mobile(nn.Module):
    """A small MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, 8, 3, 2), InvertedResidual(8, 8, 1), InvertedResidual(8, 16, 2))
        self.classifier = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.features(x).mean([2, 3])
        return self.classifier(pooled)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.norm(x)).reshape(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(0)).transpose(1, 2)
        x = x + self.proj(mixed.reshape(batch, length, width))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Block(16), Block(16))
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobile": (Mobile, (1, 3, 16, 16)),
    "transformer": (Transformer, (1, 8, 16)),
}
# Names that say nothing to the model's author: of tensors in blobs, of values in files.
MEANINGLESS = re.compile(r"\b(value_\d|v\d+\b|%\d|#\d+\b|constant_\d|tensor_\d|lowered_module|executorch_call)")


def make(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    return model().eval(), torch.randn(shape)


def modules_in(layer: str, model: nn.Module) -> bool:
    """Whether a name of a layer, or the prefix that several share, is a module of the model."""
    known = {name for name, _ in model.named_modules() if name}
    first = re.split(r"\.\{|, | … ", layer)[0]
    return first in known


def compile_for(name: str, target: str, quantize: str | None, **options: Any) -> Any:
    import edgewright as ew

    model, x = make(name)
    if quantize is not None:
        options |= {"quantize": quantize, "calibration": [(x,)]}
    return ew.compile(model, x, target=target, quiet=True, check=False, evaluate=0, **options)
