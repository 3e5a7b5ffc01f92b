"""Batch norms whose factors differ much between channels, in 8 bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgewright.backends.qualcomm import QuantDtype
from tests.backends.qualcomm.lowered import lower, quantize


class Norm(nn.Module):
    """Channels with deviations from 0.5 to 16, normalized: factors from 2 to 1/16."""

    def __init__(self, channels: int, dims: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = (nn.BatchNorm2d if dims == 2 else nn.BatchNorm1d)(channels)
        self.deviation = torch.logspace(-1, 4, channels, base=2)
        self.norm.running_var.copy_(self.deviation**2)
        self.norm.running_mean.copy_(self.deviation / 4)
        nn.init.uniform_(self.norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).relu()

    def inputs(self, *size: int) -> tuple[Tensor]:
        shape = (1, -1) + (1,) * len(size)
        return (torch.randn(1, self.deviation.numel(), *size) * self.deviation.reshape(shape),)


@pytest.mark.parametrize(("channels", "size"), [(24, (9, 8)), (24, (20,))], ids=str)
def test_wide_factors_cost_less_than_a_step(channels: int, size: tuple[int, ...]) -> None:
    model = Norm(channels, len(size)).eval()
    inputs = model.inputs(*size)
    converted = quantize(model, inputs, QuantDtype.use_8a8w)
    expected, lowered = converted(*inputs), lower(converted, inputs, fp16=False)
    assert lowered.report.groups == 1 and not lowered.report.rejected
    step = (expected.max() - expected.min()) / 255
    for run, bound in ((lowered, 0.75), (lowered.twinned(), 0.3)):  # the emulator rounds more often
        steps = (run(*inputs) - expected) / step
        assert steps.square().mean().sqrt() < bound


def test_similar_factors_stay_a_batch_norm() -> None:
    model = Norm(24, 2).eval()
    model.norm.running_var.fill_(1.0)
    inputs = (torch.randn(1, 24, 9, 8),)
    lowered = lower(quantize(model, inputs, QuantDtype.use_8a8w), inputs, fp16=False)
    assert b"Batchnorm" in (lowered.twin or b"")
    assert b"DepthWiseConv2d" not in (lowered.twin or b"")
