"""Models of lower precision under quantizers: told what to quantize instead, not left as they are without a word."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from edgewright.errors import UsageError
from edgewright.quantize.model_checks import require_float32

X = torch.randn(2, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_is_not_quantized_without_a_word(dtype: torch.dtype) -> None:
    model, x = nn.Linear(4, 3).to(dtype), X.to(dtype)
    with pytest.raises(UsageError, match=r"must be of float32 to be quantized; got b?float16") as told:
        ew.compile(model, x, target="xnnpack", quantize="int8", calibration=[x], quiet=True)
    assert "model.float()" in told.value.remedy


def test_parts_of_lower_precision_are_named(caplog: pytest.LogCaptureFixture) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3).half()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).half()).float()

    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == "edgewright.quantize"]

    require_float32(torch.export.export(nn.Linear(4, 3), (X,)).module())
    assert not told()
    with caplog.at_level(logging.WARNING):
        require_float32(torch.export.export(Mixed(), (X,)).module())
    (only,) = told()
    assert only.startswith("second.weight and 1 more are not of float32 (float16)")
