"""Attention masks that are finite numbers, or computed from the condition: no range is spent on masked elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import edgewright as ew

_LENGTH, _WIDTH = 10, 16


class Attention(nn.Module):
    """One head of attention with a padding mask."""

    def __init__(self, mask: Callable[[Tensor, Tensor], Tensor], sharpness: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.mask, self.sharpness = mask, sharpness

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2) * self.sharpness
        result: Tensor = self.mask(scores, keep).softmax(-1) @ self.value(x)
        return result


def _calls(count: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    return [
        (torch.randn(1, _LENGTH, _WIDTH), (torch.arange(_LENGTH) < 4 + i % 7).long()[None, None]) for i in range(count)
    ]


def _sqnr(mask: Callable[[Tensor, Tensor], Tensor], target: str, quantize: str, sharpness: float = 0.25) -> float:
    model, calls = Attention(mask, sharpness).eval(), _calls(12)
    result = ew.compile(model, calls[0], target, quantize=quantize, calibration=calls, evaluate=0, quiet=True)
    method = result.method()
    expected = np.concatenate([model(*call).detach().numpy() for call in calls])
    actual = np.concatenate([np.asarray(method.execute(list(call))[0]) for call in calls])
    return 10 * math.log10(float((expected**2).sum() / ((expected - actual) ** 2).sum()))


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128", "e9955"])
@pytest.mark.parametrize("fill", [-100.0, -1000.0])
def test_a_finite_fill_takes_no_resolution_from_scores(fill: float, target: str) -> None:
    infinite = _sqnr(lambda s, keep: s.masked_fill(keep == 0, -math.inf), target, "int8")
    finite = _sqnr(lambda s, keep: torch.where(keep == 0, torch.tensor(fill), s), target, "int8")
    added = _sqnr(lambda s, keep: s + (1.0 - keep.float()) * fill, target, "int8")
    assert finite > infinite - 1.5
    assert added > infinite - 5  # the sum is rounded once more


def test_a_table_of_one_low_number_takes_no_resolution_from_scores() -> None:
    table = torch.triu(torch.ones(_LENGTH, _LENGTH), 1)
    infinite = _sqnr(lambda s, keep: s + table.masked_fill(table == 1, -math.inf), "xnnpack", "int8")
    finite = _sqnr(lambda s, keep: s + table * -100.0, "xnnpack", "int8")
    assert finite > infinite - 1.5


@pytest.mark.parametrize(
    "mask",
    [
        lambda s, keep: s + (1.0 - keep.float()) * torch.finfo(torch.float32).min,
        lambda s, keep: s + torch.zeros(1, 1, _LENGTH).masked_fill(keep == 0, -math.inf),
        lambda s, keep: s + torch.zeros_like(keep, dtype=torch.float32).masked_fill(keep == 0, -1e9),
    ],
    ids=["cast", "zeros", "zeros_like"],
)
def test_computed_masks_reach_scores_that_spread_further_than_their_margin(
    mask: Callable[[Tensor, Tensor], Tensor],
) -> None:
    infinite = _sqnr(lambda s, keep: s.masked_fill(keep == 0, -math.inf), "sm8650", "a16w8", 8.0)
    assert _sqnr(mask, "sm8650", "a16w8", 8.0) > infinite - 3


class Masked(nn.Module):
    """Returns the masked scores, and the logarithms of their softmax."""

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        masked = torch.where(keep == 0, torch.tensor(-100.0), x)
        return masked, masked.log_softmax(-1)


def test_masked_scores_that_a_model_returns_keep_their_numbers() -> None:
    model, calls = Masked(), [(3 * torch.randn(1, 4, _LENGTH), keep) for _, keep in _calls(8)]
    result = ew.compile(model, calls[0], "xnnpack", quantize="int8", calibration=calls, evaluate=0, quiet=True)
    expected, actual = model(*calls[0]), result.method().execute(list(calls[0]))
    for e, a in zip(expected, actual, strict=True):
        assert np.abs(np.asarray(a) - e.numpy()).max() < 1.0  # a step is 0.5


def test_factors_and_offsets_of_scores_are_no_masks() -> None:
    plain = _sqnr(lambda s, keep: s, "xnnpack", "int8")
    assert _sqnr(lambda s, keep: s - 150.0, "xnnpack", "int8") > 12
    assert _sqnr(lambda s, keep: (s * -0.01) * -100.0, "xnnpack", "int8") > plain - 3
