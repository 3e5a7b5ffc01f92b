"""Casts of what the NPU computes: fractions go towards zero, and every number but zero is true, as in torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgewright.backends.qualcomm.partitioner import QnnPartitioner
from tests.backends.qualcomm.lowered import lower
from tests.backends.qualcomm.rows import FP16, cases

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


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.5


def test_integers_become_real_before_they_are_added_to_fractions() -> None:
    """Qualcomm's compiler has no sums of int32 in floating point, nor has a partitioner without its libraries."""
    call = next(case for case in cases("add", FP16) if "int32[3], 1.5, 1)" in case.name)
    assert QnnPartitioner.for_simulation("SM8650").rejections(call.op) == [
        "operators on int32 or bool must give int32 or bool; cast them to floating point first; got float32 of int32"
    ]
    x = torch.tensor([-1, 0, 9], dtype=torch.int32)
    made = lower(Half().eval(), (x,), fp16=True)
    assert [v.operator for v in made.report.delegated] == ["cast", "add"]
    for run in (made, made.twinned()):
        torch.testing.assert_close(run(x), x + 1.5, rtol=1e-3, atol=1e-3)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * mask


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool], ids=str)
def test_products_of_floats_and_a_mask_stay_on_the_cpu(dtype: torch.dtype) -> None:
    """QNN's arithmetic has operands of one type: the graph was rejected as a defect of ours."""
    model, inputs = Masked().eval(), (torch.randn(2, 4), torch.tensor([[1, 0, 1, 1], [0, 1, 0, 1]]).to(dtype))
    made = lower(model, inputs, fp16=True)
    assert [v.operator for v in made.report.delegated] == ["linear"]
    assert any("all be quantized or floating point" in str(r) for v in made.report.rejected for r in v.rejections)
    for run in (made, made.twinned()):
        torch.testing.assert_close(run(*inputs), model(*inputs), rtol=1e-2, atol=1e-2)
