"""Casts of what the NPU computes: fractions go towards zero, and every number but zero is true, as in torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.backends.qualcomm.lowered import lower

HALVES = torch.tensor([-3.5, -1.4, -0.75, -0.25, 0.0, 0.1, 0.25, 0.4, 0.75, 1.2, 2.3, 100.6])


class Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x).to(self.dtype)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("x", [HALVES, torch.tensor([-3, -1, 0, 1, 2, 5], dtype=torch.int32)], ids=["real", "whole"])
def test_casts_are_torchs(x: torch.Tensor, dtype: torch.dtype) -> None:
    model = Cast(dtype).eval()
    made = lower(model, (x,), fp16=True)
    assert [v.operator for v in made.report.delegated] == ["add", "cast"][: 1 + (x.dtype != dtype)], made.report
    for run in (made, made.twinned()):
        found = run(x)
        assert found.dtype == dtype
        assert torch.equal(found, model(x))
