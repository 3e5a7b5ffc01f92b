"""Elements that become indices are exact in quantized models: 3 must not be 2.99 where it is cast to an integer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import edgewright as ew


def draws(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor, ...]]:
    generators = [torch.Generator().manual_seed(n) for n in range(8)]
    return [tuple(torch.randn(shape, generator=g) for shape in shapes) for g in generators]


class Sampled(nn.Module):
    """A layer's image at computed positions, as in a spatial transformer or a deformable convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(self.layer(x), torch.tanh(grid), align_corners=False)


class Looked(nn.Module):
    """A table that is read at rounded positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.register_buffer("table", torch.randn(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x).clamp(-1.5, 1.5)
        return self.table[((scores * 10).round() + 16).long()] + scores


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_pixels_that_are_sampled_are_those_of_the_float_model(target: str) -> None:
    model, data = Sampled().eval(), draws((1, 3, 6, 6), (1, 4, 4, 2))
    result = ew.compile(model, data[0], target, quantize="int8", calibration=data, evaluate=0, quiet=True)
    exact, made = model(*data[0]), torch.as_tensor(result.method().execute([*data[0]])[0])
    noise = (made - exact).square().mean() / exact.square().mean()
    assert -10 * noise.log10() > 20  # 6 dB on both


@pytest.mark.parametrize("target", ["ethos-u55-128", "e9955"])
def test_what_is_read_from_a_table_is_one_of_its_elements(target: str) -> None:
    model, data = Looked().eval(), draws((3, 4))
    result = ew.compile(model, data[0], target, quantize="int8", calibration=data, evaluate=0, quiet=True)
    code = result.exported.module().code
    assert "aten.round.default" in code
    rounded = code.split("aten.round.default(")[1].split("aten._to_copy")[0]
    assert " torch.ops.quantized_decomposed" not in rounded
