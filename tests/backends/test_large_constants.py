"""Numbers that say "never" outside of attention, such as the -1e38 a running maximum starts with: no file holds their
scales, so the operators that need them stay on the CPU."""

from __future__ import annotations

import pytest
import torch

import edgewright as ew
from edgewright.backends.table import SCALE_RANGE


class RunningMaximum(torch.nn.Module):
    """The largest so far, and how much what came before still counts."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = self.keys(x)
        before = keys * 0.0 - 1e38
        largest = torch.maximum(before, keys)
        return torch.exp(before - largest) + torch.exp(keys - largest)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["xnnpack", "ethos-u85-256", "sm8550", "e9955", "imxrt700"])
def test_scales_that_no_file_holds_stay_on_the_cpu(target: str) -> None:
    torch.manual_seed(0)
    calls = [(torch.randn(2, 8),) for _ in range(4)]
    simulate = True if target == "sm8550" else None
    result = ew.compile(RunningMaximum(), calls[0], target, quantize="int8", calibration=calls, evaluate=0, quiet=True,
                        simulate=simulate)  # fmt: skip
    assert result.report.check.inputs == 2 and not result.report.check.skipped
    told = [str(r) for v in result.report.methods["forward"].verdicts for r in v.rejections]
    assert any(r.startswith(SCALE_RANGE.text) for r in told), told
