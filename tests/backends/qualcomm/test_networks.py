"""Networks that people ship, in Qualcomm's emulator: what they say beside the quantized model and the real one. The
pictures are small, because the emulator is slow."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

from edgewright.backends.qualcomm import QuantDtype
from tests.backends.qualcomm.lowered import agreement, lower, quantize, ratio
from tests.support.shapes import fit, inputs_of, pictures

CLASSES = 21
Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def picture(size: int, count: int = 1) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(5))


def settled(made: Made) -> Made:
    """With statistics of pictures, so that no activation is all but zero."""
    model, inputs = made
    model.train()
    with torch.no_grad():
        model(*(torch.cat([x, x.flip(-1)]) for x in inputs))
    return model.eval(), inputs


class Residual(nn.Module):
    """The block that ResNet18 is made of."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        same = channels == out and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def resnet18() -> Made:
    torch.manual_seed(0)
    stages = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              (512, 512, 1)]  # fmt: skip
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)]
    return settled((nn.Sequential(*stem, *(Residual(*s) for s in stages), *head), (picture(64, 4),)))


class Inverted(nn.Module):
    """The block of EfficientNet-Lite: no gates, and activations that end at 6."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, grow: int) -> None:
        super().__init__()
        wide = channels * grow
        layers: list[nn.Module] = []
        if grow > 1:
            layers += [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False), nn.BatchNorm2d(wide),
                   nn.ReLU6(), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]  # fmt: skip
        self.body, self.adds = nn.Sequential(*layers), channels == out and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.body(x)
        return x + made if self.adds else made


def efficientnet_lite0() -> Made:
    torch.manual_seed(0)
    stages = [(16, 3, 1, 1, 1), (24, 3, 2, 6, 2), (40, 5, 2, 6, 2), (80, 3, 2, 6, 3), (112, 5, 1, 6, 3),
              (192, 5, 2, 6, 4), (320, 3, 1, 6, 1)]  # fmt: skip
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    channels = 32
    for out, kernel, stride, grow, count in stages:
        for index in range(count):
            layers.append(Inverted(channels, out, kernel, stride if index == 0 else 1, grow))
            channels = out
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6(), nn.AdaptiveAvgPool2d(1),
               nn.Flatten(), nn.Linear(1280, 100)]  # fmt: skip
    return settled((nn.Sequential(*layers), (picture(64, 4),)))


def vit_block() -> Made:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, norm_first=True)
    return settled((layer, (torch.randn(1, 17, 64, generator=torch.Generator().manual_seed(5)),)))


class Atrous(nn.Module):
    """DeepLabV3's head on a small backbone: dilated windows side by side, a picture's mean, and its size again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), Residual(16, 32, 2))
        self.wide = nn.ModuleList(nn.Conv2d(32, 16, 3, padding=d, dilation=d) for d in (1, 2, 3))
        self.mean, self.last = nn.Conv2d(32, 16, 1), nn.Conv2d(64, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, y = x.shape[-2:], self.stem(x)
        pooled = fn.interpolate(self.mean(fn.adaptive_avg_pool2d(y, 1)), y.shape[-2:], mode="bilinear")
        parts = [torch.relu(conv(y)) for conv in self.wide]
        return fn.interpolate(self.last(torch.cat([*parts, pooled], 1)), size, mode="bilinear", align_corners=False)


def deeplab() -> Made:
    """Its last layer tells shapes by their colours; a picture that it was not fitted to."""
    torch.manual_seed(0)
    images, labels = pictures(16, 32, CLASSES, seed=1)
    model, _ = settled((Atrous(), (images,)))
    fit(model.last, inputs_of(model.last, model, images), labels)
    return model, (pictures(1, 32, CLASSES, seed=2)[0],)


SCHEMES = {"8a8w": 30, "16a8w": 45}
SMALL: list[Callable[[], Made]] = [vit_block, deeplab]
LARGE: list[Callable[[], Made]] = [resnet18, efficientnet_lite0]


def check(make: Callable[[], Made], scheme: str) -> None:
    """Compiled whole; the emulator says what the quantized model says, and so does the twin; both in decibels, and by
    the classes that are named."""
    model, inputs = make()
    chosen = model if scheme == "fp16" else quantize(model, inputs, QuantDtype[f"use_{scheme}"])
    made = lower(chosen, inputs, fp16=scheme == "fp16")
    assert not made.report.rejected, made.report.rejected
    with torch.no_grad():
        found, twin, wanted, real = made(*inputs), made.twinned()(*inputs), chosen(*inputs), model(*inputs)
    dim, bits = 1 if found.dim() == 4 else -1, 8 if scheme == "8a8w" else 10
    said = {name: (ratio(other, found), *agreement(other, found, dim, bits))
            for name, other in (("quantized", wanted), ("twin", twin), ("real", real))}  # fmt: skip
    shown = "; ".join(f"{n} {d:.1f} dB, the same {p:.1%}, where sure {s:.1%}" for n, (d, p, s) in said.items())
    print(f"{make.__name__} {scheme}: {shown}")
    for name in ("quantized", "twin"):
        decibels, _, sure = said[name]
        assert decibels > SCHEMES.get(scheme, 40)
        assert sure >= 0.99
    assert said["twin"][1] >= 0.99


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", ["fp16", *SCHEMES])
@pytest.mark.parametrize("make", [*SMALL, *(pytest.param(m, marks=pytest.mark.slow) for m in LARGE)])
def test_networks_say_what_they_said(make: Callable[[], Made], scheme: str) -> None:
    check(make, scheme)


class Decoder(nn.Module):
    """A decoder's block with a cache of keys and values, one token at a time."""

    def __init__(self, width: int = 32, heads: int = 2, length: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads, self.depth = heads, width // heads
        self.norm, self.last = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.parts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.down = nn.Linear(64, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, self.depth))
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1))

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (part(y).reshape(1, 1, self.heads, self.depth).transpose(1, 2) for part in self.parts[:3])
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        scores = q @ self.keys.transpose(2, 3) / self.depth**0.5 + self.mask[place]
        mixed = torch.softmax(scores, -1) @ self.values
        x = x + self.parts[3](mixed.transpose(1, 2).reshape(1, 1, -1))
        y = self.last(x)
        return x + self.down(fn.silu(self.gate(y)) * self.up(y))


TOKENS = torch.randn(6, 1, 1, 32, generator=torch.Generator().manual_seed(5))
STEPS = [(token, torch.tensor([place])) for place, token in enumerate(TOKENS)]


def decoder(scheme: str) -> nn.Module:
    """As it is, or calibrated on all tokens; with an empty cache."""
    if scheme == "fp16":
        return Decoder().eval()
    made = quantize(Decoder().eval(), STEPS[0], QuantDtype[f"use_{scheme}"], STEPS)
    for name in ("keys", "values"):
        getattr(made, name).zero_()
    return made


@pytest.mark.sample(1)
@pytest.mark.parametrize(("scheme", "decibels"), [("fp16", 40), ("8a8w", 30), ("16a8w", 45)])
def test_a_decoder_with_a_cache_says_what_eager_says(scheme: str, decibels: float) -> None:
    """Token by token: beside the quantized model, its twin, and the real one."""
    made = lower(decoder(scheme), STEPS[0], fp16=scheme == "fp16")
    assert not made.report.rejected
    chosen, real, twin = decoder(scheme), Decoder().eval(), made.twinned()
    for step in STEPS:
        with torch.no_grad():
            found = made(*step)
            said = [ratio(other(*step), found) for other in (chosen, twin, real)]
        print(f"token {int(step[1])} in {scheme}: {', '.join(f'{d:.1f} dB' for d in said)}")
        assert min(said) > decibels
