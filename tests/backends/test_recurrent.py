"""Recurrent layers on every backend: their products are linear layers, which all of them take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew

TARGETS = {"float": ["xnnpack", "sm8650", "e9955"], "int8": ["xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700"]}


class Last(nn.Module):
    """The state after the last step."""

    def __init__(self, steps: nn.RNNBase) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.steps(x)[0]
        return found[:, -1]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "precision"), [(nn.LSTM, "float"), (nn.RNN, "float"), (nn.GRU, "float"), (nn.GRU, "int8")]
)
def test_every_product_of_a_recurrent_layer_is_taken(kind: type[nn.RNNBase], precision: str) -> None:
    torch.manual_seed(0)
    model, inputs = Last(kind(8, 8, batch_first=True)).eval(), (torch.randn(1, 2, 8),)
    options: dict[str, Any] = {"quantize": "int8", "calibration": [inputs]} if precision == "int8" else {}
    results = ew.compile(model, inputs, target=TARGETS[precision], quiet=True, **options)
    shares = {name: result.report.coverage["macs"] for name, result in results.items()}
    assert shares == dict.fromkeys(TARGETS[precision], 1)
    assert min(result.report.sqnr or 0 for result in results.values()) > 25
