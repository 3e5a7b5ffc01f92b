"""A detector's head: coordinates and probabilities in one tensor, in integers, on every backend."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew


class Head(nn.Module):
    """Boxes of up to some tens of pixels beside probabilities, whose range is known to be 0 to 1."""

    def __init__(self, probabilities_first: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
        self.probabilities_first = probabilities_first

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).permute(0, 2, 3, 1).reshape(1, -1, 6)
        if self.probabilities_first:
            return torch.cat((y[..., 2:].sigmoid(), y[..., :2].relu() * 30), -1)
        return torch.cat((y[..., :2].relu() * 30, y[..., 2:].sigmoid(), y[..., 2:].tanh()), -1)


@pytest.mark.sample(1)
@pytest.mark.parametrize("probabilities_first", [False, True], ids=["boxes-first", "probabilities-first"])
def test_what_has_a_known_range_does_not_cut_off_what_lies_beside_it(probabilities_first: bool) -> None:
    torch.manual_seed(0)
    model, inputs = Head(probabilities_first).eval(), (torch.randn(1, 3, 4, 4),)
    targets = ["xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700"]
    results = ew.compile(
        model, inputs, target=targets, quantize="int8", calibration=[inputs, (torch.randn(1, 3, 4, 4),)]
    )
    short = {name: result.report.sqnr for name, result in results.items() if not (result.report.sqnr or 0) > 30}
    assert not short
