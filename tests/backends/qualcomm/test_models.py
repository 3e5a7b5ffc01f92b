"""Whole networks, from PyTorch to Qualcomm's emulator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import edgewright
from edgewright.backends.qualcomm import QuantDtype
from edgewright.runtime import Runtime
from tests.backends.qualcomm.lowered import lower, quantize, ratio
from tests.support import cifar

SCHEMES = {
    "8a8w": (QuantDtype.use_8a8w, 30),
    "16a8w": (QuantDtype.use_16a8w, 45),
    "16a16w": (QuantDtype.use_16a16w, 45),
    "16a4w": (QuantDtype.use_16a4w, 45),
    "16a4w_block": (QuantDtype.use_16a4w_block, 45),
    "8a4w": (QuantDtype.use_8a4w, 30),
}


class CifarNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = [(3, 16), (16, 16), (16, 32)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 5, padding=2) for a, b in widths)
        self.fc = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = torch.max_pool2d(torch.relu(conv(x)), 2)
        return self.fc(x.flatten(1))


class Block(nn.Module):
    """Attention with one head, written out, and what follows it in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.last = nn.LayerNorm(32), nn.LayerNorm(32)
        self.parts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (part(y) for part in self.parts[:3])
        x = x + self.parts[3](torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 32**0.5, -1) @ v)
        return x + self.down(torch.nn.functional.gelu(self.up(self.last(x))))


def cifarnet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return CifarNet().eval(), (torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)),)


def block() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Block().eval(), (torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(1)),)


@pytest.mark.parametrize("make", [cifarnet, block])
def test_float32_models_are_computed_in_fp16(make) -> None:
    model, inputs = make()
    made = lower(model, inputs, fp16=True)
    assert not made.report.rejected
    with torch.no_grad():
        assert 40 < ratio(model(*inputs), made(*inputs)) < 90, "near, and not float32"


@pytest.mark.sample(2)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_give_what_was_calibrated(scheme: str, per_channel: bool) -> None:
    model, inputs = cifarnet()
    chosen, decibels = SCHEMES[scheme]
    converted = quantize(model, inputs, chosen, per_channel=per_channel, blocks=_blocks(scheme))
    made = lower(converted, inputs, fp16=False)
    assert not made.report.rejected
    with torch.no_grad():
        assert ratio(converted(*inputs), made(*inputs)) > decibels


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_a_transformers_block_is_quantized(scheme: str) -> None:
    model, inputs = block()
    converted = quantize(model, inputs, SCHEMES[scheme][0])
    made = lower(converted, inputs, fp16=False)
    assert not made.report.rejected
    with torch.no_grad():
        assert ratio(converted(*inputs), made(*inputs)) > 25


def _blocks(scheme: str) -> dict[str, tuple[int, ...]]:
    return {"linear": (1, 32)} if scheme == "16a4w_block" else {}


@pytest.mark.parametrize(
    "scheme", ["8a8w", "16a4w_block", *(pytest.param(s, marks=pytest.mark.slow) for s in ("16a8w", "16a16w", "16a4w"))]
)
def test_what_was_trained_with_its_quantization_is_lowered(scheme: str) -> None:
    model, inputs = cifarnet()
    chosen, decibels = SCHEMES[scheme]
    converted = quantize(model.train(), inputs, chosen, [inputs] * 2, qat=True, blocks=_blocks(scheme))
    made = lower(converted, inputs, fp16=False)
    assert not made.report.rejected
    with torch.no_grad():
        assert ratio(converted(*inputs), made(*inputs)) > decibels


@pytest.mark.usefixtures("compiler_process")
@pytest.mark.parametrize("scheme", ["8a8w", *(pytest.param(s, marks=pytest.mark.slow) for s in ("fp16", "16a4w"))])
def test_the_same_model_gives_the_same_file(scheme: str) -> None:
    model, inputs = cifarnet()
    chosen = model if scheme == "fp16" else quantize(model, inputs, SCHEMES[scheme][0])
    fp16 = scheme == "fp16"
    assert lower(chosen, inputs, fp16=fp16).program == lower(chosen, inputs, fp16=fp16).program


def agreement(scheme: str, count: int) -> tuple[float, float]:
    """How often a trained MobileNetV2 says the same in the emulator as in floating point, and signal to noise."""
    model, images = cifar.mobilenet(), cifar.images(count)
    example = (images[:10],)
    chosen = model
    if scheme != "fp16":
        batches = torch.cat(list(cifar.calibration(40))).split(10)
        chosen = quantize(model, example, SCHEMES[scheme][0], [(b,) for b in batches])
    made = lower(chosen, example, fp16=scheme == "fp16")
    assert not made.report.rejected
    with torch.no_grad():
        found = torch.cat([made(batch) for batch in images.split(10)])
        real, wanted = model(images), torch.cat([chosen(batch) for batch in images.split(10)])
    return float((found.argmax(1) == real.argmax(1)).float().mean()), ratio(wanted, found)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "decibels"), [("fp16", 45), ("8a8w", 30), ("16a8w", 45)])
def test_a_trained_mobilenet_says_the_same(scheme: str, decibels: float) -> None:
    same, found = agreement(scheme, 20)
    assert same >= 0.97
    assert found > decibels


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "least"), [("fp16", 0.99), ("8a8w", 0.97), ("16a8w", 0.99)])
def test_a_trained_mobilenet_says_the_same_of_more_images(scheme: str, least: float) -> None:
    same, found = agreement(scheme, 500)
    print(f"{scheme}: {same:.1%} of the answers those of floating point, {found:.1f} dB")
    assert same >= least


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "decibels"), [("8a8w", 30), ("16a8w", 45), ("16a4w", 45)])
def test_the_twin_of_a_trained_mobilenet_says_what_the_emulator_says(scheme: str, decibels: float) -> None:
    images, batches = cifar.images(200), torch.cat(list(cifar.calibration(40))).split(10)
    example = (images[:10],)
    made = lower(quantize(cifar.mobilenet(), example, SCHEMES[scheme][0], [(b,) for b in batches]), example, fp16=False)
    twin = made.twinned()
    wanted, found = (torch.cat([run(batch) for batch in images.split(10)]) for run in (made, twin))
    same = float((wanted.argmax(1) == found.argmax(1)).float().mean())
    print(f"{scheme}: {ratio(wanted, found):.1f} dB, {same:.1%} of the answers the same")
    assert same >= 0.99 and ratio(wanted, found) > decibels


class BesideItsInput(torch.nn.Module):
    """A clamped convolution and its input in one tensor: both have the range of the input."""

    def __init__(self, limits: tuple[float, float], groups: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False)
        self.limits = limits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, torch.clamp(self.conv(x), *self.limits)], 1)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("limits", [(0.0, 6.0), (0.0, 1.0), (-1.0, 1.0)])
def test_limits_outside_of_the_range_do_not_disable_the_others(limits: tuple[float, float], groups: int) -> None:
    model, inputs = BesideItsInput(limits, groups).eval(), [torch.randn(1, 4, 5, 5) for _ in range(4)]
    result = edgewright.compile(model, inputs[0], "sm8650", quantize="int8", calibration=inputs, quiet=True)
    program = Runtime.get().load_program(result.program.buffer)
    (found,) = program.load_method("forward").execute([inputs[0].numpy()])
    assert np.abs(found - model(inputs[0]).detach().numpy()).max() < 0.1
