"""A value that is smaller than a few steps of a device's smallest scale is reported with its module."""

from __future__ import annotations

import logging
import sys

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew


class Small(nn.Module):
    """A layer whose result is scaled by a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.factor = nn.Linear(8, 4), factor

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.relu(self.layer(x)) * self.factor
        return result


def _warnings(factor: float, target: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    torch.manual_seed(1)
    calls = [(torch.randn(2, 8),) for _ in range(4)]
    with caplog.at_level(logging.WARNING, "edgewright"):
        ew.compile(Small(factor).eval(), calls[0], target, quantize="int8", calibration=calls, evaluate=0, quiet=True)
    return [r.getMessage() for r in caplog.records if "of the smallest scale" in r.getMessage()]


@pytest.mark.parametrize("target", ["ethos-u55-128", "e9955"])
def test_a_result_below_the_smallest_scale_is_reported(target: str, caplog: pytest.LogCaptureFixture) -> None:
    messages = _warnings(1e-6, target, caplog)
    assert len(messages) == 1
    assert "'mul'" in messages[0] and "test_small_ranges.py" in messages[0]


@pytest.mark.parametrize("target", ["ethos-u55-128", "e9955", "xnnpack"])
def test_ordinary_ranges_are_not(target: str, caplog: pytest.LogCaptureFixture) -> None:
    assert not _warnings(0.5, target, caplog)


def test_the_report_is_not_redirected() -> None:
    """The output of torch is, while models are converted, and whatever is logged to it."""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "of the smallest scale" in record.getMessage():
                seen.append(sys.stderr)

    handler, stderr, calls = Handler(), sys.stderr, [(torch.ones(2, 8),)]
    logging.getLogger("edgewright").addHandler(handler)
    try:
        ew.compile(Small(1e-6).eval(), calls[0], "e9955", quantize="int8", calibration=calls, evaluate=0, quiet=True)
    finally:
        logging.getLogger("edgewright").removeHandler(handler)
    assert seen == [stderr]
