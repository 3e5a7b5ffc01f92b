"""``train=fn``: quantization-aware training in one call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

import edgewright as ew
from edgewright.errors import AccuracyError, UsageError
from tests.quantize.test_channel_scales import TARGETS
from tests.quantize.test_preparation import settle


class Small(nn.Module):
    """A network, whose weights of 4 bits lose much; with a norm, which torchao takes ten seconds to fold."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8) if norm else nn.Identity()
        self.drop, self.fc = nn.Dropout(0.1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.drop(fn.relu(self.norm(self.conv(x))).mean((2, 3))))
        return y


def data(count: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, 3, 8, 8, generator=draw) for _ in range(count)]


def distill(model: nn.Module, steps: int, rate: float = 2e-3) -> Any:
    """Training towards the float model's results, in batches."""
    inputs = torch.cat(data(64))
    with torch.no_grad():
        wanted = model(inputs)

    def train(prepared: Any) -> None:
        assert torch.is_grad_enabled()
        optimizer = torch.optim.Adam(prepared.parameters(), rate)
        for step in range(steps):
            part = slice(step * 16 % 64, step * 16 % 64 + 16)
            optimizer.zero_grad()
            fn.mse_loss(prepared(inputs[part]), wanted[part]).backward()
            optimizer.step()

    return train


def compiled(model: nn.Module, target: str, precision: str = "int8", **options: Any) -> Any:
    inputs = data(72)
    return ew.compile(model, (inputs[0],), target, quantize=precision, calibration=inputs[:32], evaluate=inputs[64:],
                      quiet=True, **options)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_trains(target: str) -> None:
    check_training(settle(Small()), target)


def test_a_model_without_norms_trains() -> None:
    check_training(Small(norm=False).eval(), "xnnpack")


def check_training(model: nn.Module, target: str) -> None:
    """In batches, though the program takes single inputs; the user's model stays as it was."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = compiled(model, target, train=distill(model, 2)).report
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not model.training
    assert report.check.inputs and report.evaluated_on == "given"
    assert report.sqnr > 15


@pytest.mark.slow
def test_training_gains_where_calibration_loses() -> None:
    """Against the float model, on inputs that were not trained with."""
    model = settle(Small())
    calibrated, trained = (
        compiled(model, "sm8650", "a8w4", **options).report for options in ({}, {"train": distill(model, 150)})
    )
    assert trained.sqnr > calibrated.sqnr + 2


@pytest.mark.slow
def test_a_returned_model_is_used() -> None:
    model = settle(Small())
    seen = []

    def train(prepared: Any) -> Any:
        seen.append(prepared)
        with torch.no_grad():
            prepared.fc.weight.zero_()
            prepared.fc.bias.fill_(0.25)
        return prepared

    result = compiled(model, "xnnpack", train=train)
    assert len(seen) == 1 and abs(float(result.run(data(1)[0]).mean()) - 0.25) < 0.02


@pytest.mark.slow
def test_a_program_is_trained_in_its_own_batch() -> None:
    model = settle(Small())
    exported = torch.export.export(model, (torch.cat(data(4)),))
    inputs = [torch.cat(data(8)[i : i + 4]) for i in range(4)]

    def train(prepared: Any) -> None:
        prepared(inputs[0]).square().mean().backward()

    assert ew.compile(
        exported, target="xnnpack", quantize="int8", calibration=inputs, train=train, quiet=True
    ).report.sqnr


class Summed(nn.Module):
    """Any number of inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(sum(inputs))
        return y


def test_a_model_with_any_number_of_inputs_is_trained_in_batches() -> None:
    inputs = [(torch.randn(1, 4), torch.randn(1, 4)) for _ in range(4)]
    shapes = []

    def train(prepared: Any) -> None:
        shapes.append(prepared(*(torch.cat(parts) for parts in zip(*inputs, strict=True))).shape)

    ew.compile(Summed().eval(), inputs[0], "xnnpack", quantize="int8", calibration=inputs, train=train, quiet=True)
    assert shapes == [(4, 4)]


def test_errors() -> None:
    model = Small(norm=False).eval()

    def raising(prepared: Any) -> None:
        raise RuntimeError("out of data")

    def spoiling(prepared: Any) -> None:
        with torch.no_grad():
            prepared.fc.weight.fill_(float("nan"))

    with pytest.raises(UsageError, match="train: raising: raised RuntimeError: out of data"):
        compiled(model, "xnnpack", train=raising)
    with pytest.raises(AccuracyError, match=r"train: fc.weight: must be finite after training"):
        compiled(model, "xnnpack", train=spoiling)
    with pytest.raises(UsageError, match="must return the model or None; got dict"):
        compiled(model, "xnnpack", train=lambda prepared: {})
    with pytest.raises(UsageError, match="method 'bias': is for calibrated models"):
        compiled(model, "xnnpack", "int8+bias", train=distill(model, 1))
    with pytest.raises(UsageError, match="train: goes with a preset"):
        compiled(model, "xnnpack", "int8-best", train=distill(model, 1))
    with pytest.raises(UsageError, match="train: is for quantized models"):
        ew.compile(model, (data(1)[0],), "xnnpack", train=distill(model, 1), quiet=True)
