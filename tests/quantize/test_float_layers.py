"""A layer that a recipe leaves in floating point."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import edgewright
from edgewright.quantize.evaluate import sqnr


class ClampedStem(nn.Module):
    """A first layer whose activation clamps most of its range: [-60, 60] becomes [0, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.stem.weight.data.mul_(15)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(nn.functional.relu6(self.stem(x)))


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128", "imxrt700", "sm8650", "e9955"])
def test_activation_stays_in_float_with_its_layer(target: str) -> None:
    torch.manual_seed(0)
    model = ClampedStem().eval()
    data = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]

    def graph(modules: dict[str, str]) -> torch.nn.Module:
        recipe = {"quantize": "int8", "modules": modules}
        result = edgewright.compile(model, data[0], target, recipe=recipe, calibration=data, quiet=True)
        return result.exported.module()

    with torch.no_grad():
        quantized, stem_in_float = graph({}), graph({"stem": "float"})
        expected = model(*data[1])
        of_quantized, of_float_stem = (sqnr([([expected], [m(*data[1])])]) for m in (quantized, stem_in_float))
    assert of_float_stem > of_quantized + 1
