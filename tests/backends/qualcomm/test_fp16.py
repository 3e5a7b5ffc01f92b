"""Models in half precision, which the HTP computes in as they are: their inputs and outputs stay halves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.backends.qualcomm.lowered import lower
from tests.backends.qualcomm.test_models import block


class Images(nn.Module):
    """What is folded, padded, pooled, made of numbers and cast."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.slope, self.head = nn.PReLU(8), nn.Linear(8, 5)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.slope(self.norm(self.conv(x * 2))).clamp(max=3)
        top = self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))
        return top.softmax(-1), (y.mean((2, 3)) > 0.25).float()


def _off(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max())


@pytest.mark.sample(1)
@pytest.mark.parametrize("made", [block, lambda: (Images().eval(), (torch.randn(2, 3, 8, 8),))])
def test_halves_are_computed_and_stay_halves(made) -> None:
    model, inputs = made()
    with torch.no_grad():
        wanted = model(*inputs)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    halves = tuple(x.half() for x in inputs)
    done = lower(model.half(), halves, fp16=True)
    assert not done.report.rejected and len({v.group for v in done.report.delegated}) == 1
    for run in (done, done.twinned()):
        found = run(*halves)
        assert found.dtype == torch.float16
        assert _off(found, wanted) <= 1e-2


def test_bfloat16_is_told_what_to_export() -> None:
    model, inputs = block()
    done = lower(model.bfloat16(), tuple(x.bfloat16() for x in inputs), fp16=True)
    assert not done.report.delegated
    told = "; ".join(done.report.rejected[0].rejections)
    assert "model.half() or model.float()" in told and "bfloat16" in told
