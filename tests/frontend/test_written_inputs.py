"""An input that forward writes in place is reported: callers of the file do not see it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew


class Decay(nn.Module):
    """Halves an input, in place or not, and adds it."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return x + (h.mul_(0.5) if self.in_place else h.mul(0.5))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_written_input_is_reported(in_place: bool, quantize: str | None, caplog: pytest.LogCaptureFixture) -> None:
    calls = [(torch.randn(1, 4), torch.ones(1, 4)) for _ in range(4)]
    options: dict[str, Any] = {} if quantize is None else {"quantize": quantize, "calibration": calls}
    with caplog.at_level(logging.WARNING, "edgewright"):
        result = ew.compile(Decay(in_place), calls[0], "xnnpack", evaluate=0, quiet=True, **options)
    assert ("input 'h' is written in place" in caplog.text) == in_place
    x, h = torch.zeros(1, 4), torch.ones(1, 4)
    (output,) = result.method().execute([x, h])
    assert torch.allclose(torch.as_tensor(output), torch.full((1, 4), 0.5), atol=0.02)
    assert bool((h == 1).all())
