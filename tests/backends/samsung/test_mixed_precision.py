"""Layers with 16 bits between layers with 8 bits: ENN's products have one type, so the narrower is converted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import edgewright as ew
from edgewright.runtime import Runtime


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.depthwise = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.transposed = nn.ConvTranspose2d(8, 6, 3, 2, padding=1, output_padding=1)
        self.along, self.linear = nn.Conv1d(6, 8, 3), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transposed(nn.functional.hardtanh(self.depthwise(self.first(x).relu()), -0.3, 0.2))
        return self.linear(self.along(x.flatten(2)).relu().mean(2))  # type: ignore[no-any-return]


LAYERS = ("first", "depthwise", "transposed", "along", "linear")


def calls(count: int = 8) -> list[tuple[Tensor]]:
    random = torch.Generator().manual_seed(5)
    return [(torch.randn(1, 3, 8, 8, generator=random),) for _ in range(count)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("presets", [("int8", "a16w16"), ("ua8w8", "ua16w16")])
@pytest.mark.parametrize("raised", [(name,) for name in LAYERS] + list(pairwise(LAYERS)))
def test_raised_layers(raised: tuple[str, ...], presets: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """``compile`` compares the file with the graph it was lowered from, layer by layer."""
    narrow, wide = presets
    recipe = {"quantize": narrow, "modules": dict.fromkeys(raised, wide)}
    result = ew.compile(
        Layers().eval(), calls()[0], "e9955", recipe=recipe, calibration=calls(), evaluate=2, quiet=True
    )
    (method,) = result.report.methods.values()
    assert method.coverage()["macs"] == 1 and result.report.check.inputs == 2
    native = [run(result.buffer, *call) for call in calls()]
    monkeypatch.setenv("EDGEWRIGHT_ENGINE", "reference")
    for found, call in zip(native, calls(), strict=True):
        np.testing.assert_array_equal(found, run(result.buffer, *call))


def run(program: bytes, x: Tensor) -> np.ndarray:
    return np.asarray(Runtime().load_program(program).load_method("forward").execute([x])[0])
