"""Ranges of random histograms are torchao's to the bit, whatever they look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torchao.quantization.pt2e import HistogramObserver

from edgewright.quantize.histogram import FiniteHistogramObserver

SCHEMES = (
    (torch.int8, -128, 127, torch.per_tensor_affine),
    (torch.uint8, 0, 255, torch.per_tensor_affine),
    (torch.int16, -32768, 32767, torch.per_tensor_symmetric),
)
BINS = 2048


def histograms(extremes: bool) -> Iterator[tuple[torch.Tensor, float, float]]:
    draw = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=draw)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    spikes = torch.zeros(BINS)
    spikes[0] = spikes[-1] = 1
    spikes[1198] = 1e5
    shapes = [
        (uniform(BINS) * 100).floor(),
        torch.histc(normal(20_000), BINS),
        torch.histc(normal(20_000).relu(), BINS),
        torch.histc(normal(3_000) ** 5, BINS),
        (uniform(BINS) < 0.01) * uniform(BINS) * 1e6,
        torch.exp(-(torch.linspace(-6, 6, BINS) ** 2)) * 1e7 * uniform(BINS),
        torch.histc(torch.softmax(normal(100, 100) * 4, -1), BINS),
        torch.histc(normal(50_000) * torch.exp(normal(50_000)), BINS),
    ]
    for shape in shapes:
        yield shape, -float(uniform(1) * 10), float(uniform(1) * 10)
        yield shape.flip(0), 0.0, float(uniform(1) * 1e-3)
    yield shapes[1], 1.5, 1.5  # all that was seen is one number
    if extremes:
        yield spikes, -1.0, 2.0  # torchao goes through all steps


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: str(s[0]).removeprefix("torch."))
def test_ranges_of_random_histograms_are_those_of_torchao(scheme: tuple[Any, ...]) -> None:
    dtype, low, high, kind = scheme
    for number, (histogram, least, most) in enumerate(histograms(dtype is torch.int8)):
        found = []
        for cls in (HistogramObserver, FiniteHistogramObserver):
            observer = cls(dtype=dtype, quant_min=low, quant_max=high, qscheme=kind, eps=2**-12)
            observer.histogram.copy_(histogram)
            observer.min_val.copy_(torch.tensor(least))
            observer.max_val.copy_(torch.tensor(most))
            found.append([float(end) for end in observer._non_linear_param_search()])
        assert found[0] == found[1], number
