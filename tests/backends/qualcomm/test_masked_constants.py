"""Constants chosen by a mask: the number beside them has the type of the result, not of the mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from tests.backends.qualcomm.lowered import ratio

PADDED = torch.arange(8)[None] >= torch.tensor([[5]])


class Padding(nn.Module):
    """The padding mask of PyTorch's transformer layers: zeros, filled with minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        mask = torch.zeros_like(padded, dtype=torch.float32).masked_fill(padded, -math.inf)
        return torch.softmax(self.layer(x) + mask, -1)


class Filled(Padding):
    """A constant, of which some elements are replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(1, 2, 8))

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        return self.layer(x) * self.scale.masked_fill(padded, -3.0)


@pytest.mark.parametrize("quantize", ["int8", "a16w8", None])
@pytest.mark.parametrize("model", [Padding, Filled])
def test_a_constant_filled_by_a_mask_has_the_number(model: type[nn.Module], quantize: str | None) -> None:
    torch.manual_seed(0)
    network, inputs = model().eval(), [(torch.randn(1, 8), PADDED.roll(n, -1)) for n in range(4)]
    calibration = {"calibration": inputs} if quantize else {}
    result = ew.compile(network, inputs[0], "sm8650", quantize=quantize, evaluate=0, quiet=True, simulate=True,
                        **calibration)  # fmt: skip
    with torch.no_grad():
        assert min(ratio(network(*x), result.run(*x)) for x in inputs) > 30
