"""Whole networks, small in code and of the usual size: what the compiler is measured with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class CifarNet(nn.Module):
    """Three 5x5 convolutions with pooling, and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 32, 5, padding=2)
        self.conv3 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc = nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.max_pool2d(conv(x).relu(), 2, 2)
        return self.fc(x.flatten(1))


def conv_norm(inside: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inside, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out)]


class Inverted(nn.Module):
    """MobileNetV2's block: widen, filter each channel, narrow."""

    def __init__(self, inside: int, out: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = inside * widen
        first = [*conv_norm(inside, wide, 1), nn.ReLU6()] if widen > 1 else []
        middle = [*conv_norm(wide, wide, 3, stride, wide), nn.ReLU6()]
        self.body = nn.Sequential(*first, *middle, *conv_norm(wide, out, 1))
        self.adds = stride == 1 and inside == out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(nn.Module):
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_norm(3, 32, 3, 2), nn.ReLU6()]
        width = 32
        for widen, out, count, stride in self.STAGES:
            for index in range(count):
                layers.append(Inverted(width, out, stride if index == 0 else 1, widen))
                width = out
        self.features = nn.Sequential(*layers, *conv_norm(width, 1280, 1), nn.ReLU6())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*conv_norm(inside, out, 3, stride), nn.ReLU(), *conv_norm(out, out))
        self.skip = nn.Sequential(*conv_norm(inside, out, 1, stride)) if inside != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        stages = [
            layer
            for inside, out in itertools.pairwise(widths)
            for layer in (Residual(inside, out, 1 + (inside != out)), Residual(out, out, 1))
        ]
        self.stem = nn.Sequential(*conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1))


def encoder(width: int, heads: int, layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class ViT(nn.Module):
    """A small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 64))
        self.places = nn.Parameter(torch.randn(1, 17, 64) * 0.02)
        self.encoder = encoder(64, 4, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class BiLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(x))[0])


class Decoder(nn.Module):
    """One block of a language model that writes its keys and values into a cache."""

    def __init__(self, width: int = 32, heads: int = 4, length: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        batch, steps, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        self.keys[:, :, at] = key
        self.values[:, :, at] = value
        seen = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=self.mask[at][None, None])
        x = x + self.out(seen.transpose(1, 2).reshape(batch, steps, width))
        return x + self.mlp(self.norm2(x))


class Upscaler(nn.Module):
    """GroupNorm, PixelShuffle and bilinear interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.last = nn.Conv2d(16, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        sharp = self.shuffle(self.last(F.silu(self.norm(self.first(x)))))
        return sharp + F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


Made = tuple[nn.Module, tuple[Any, ...]]


def _model(kind: Callable[[], nn.Module], *inputs: Callable[[], Tensor]) -> Callable[[], Made]:
    def make() -> Made:
        torch.manual_seed(11)
        model = kind().eval().requires_grad_(False)
        return model, tuple(each() for each in inputs)

    return make


# Each gives a network with random weights (the same every time) and inputs for it.
MODELS: dict[str, Callable[[], Made]] = {
    "cifarnet": _model(CifarNet, lambda: torch.randn(1, 3, 32, 32)),
    "mobilenet_v2": _model(MobileNetV2, lambda: torch.randn(1, 3, 224, 224)),
    "resnet18": _model(ResNet18, lambda: torch.randn(1, 3, 224, 224)),
    "vit": _model(ViT, lambda: torch.randn(1, 3, 32, 32)),
    "bilstm": _model(BiLSTM, lambda: torch.randint(0, 50, (1, 7))),
    "encoder": _model(lambda: encoder(32, 4, 2), lambda: torch.randn(1, 9, 32)),
    "decoder": _model(Decoder, lambda: torch.randn(1, 1, 32), lambda: torch.tensor([3])),
    "upscaler": _model(Upscaler, lambda: torch.randn(1, 3, 24, 24)),
}
