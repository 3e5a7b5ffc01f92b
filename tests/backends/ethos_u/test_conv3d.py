"""Convolutions of volumes: whole on a U85, with the reference model's integers; a reason on other NPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.backends.ethos_u.lowered import lower, quantize
from tests.backends.ethos_u.test_blocks import OUTSIDE, likeness
from tests.backends.ethos_u.test_models import assert_same_as_reference

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "padded": lambda: nn.Conv3d(4, 6, 3, padding=1),
    "same, with gaps": lambda: nn.Conv3d(4, 6, (2, 3, 3), padding="same", dilation=(1, 1, 2)),
    "strided": lambda: nn.Conv3d(4, 6, 3, padding=(0, 1, 1), stride=(1, 2, 2)),
    "grouped": lambda: nn.Conv3d(4, 6, 3, padding=1, groups=2),
    "depthwise": lambda: nn.Conv3d(4, 8, 3, padding=1, groups=4, bias=False),
    "norm and activation": lambda: nn.Sequential(nn.Conv3d(4, 6, 3), nn.BatchNorm3d(6), nn.ReLU(), nn.Conv3d(6, 2, 1)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("config", ["a8w8", pytest.param("a16w8", marks=pytest.mark.slow)])
def test_a_u85_convolves_volumes_in_integers(name: str, config: str) -> None:
    torch.manual_seed(0)
    quantized = quantize((LAYERS[name]().eval(), (torch.randn(1, 4, 4, 6, 6),)), config, "ethos-u85-256")
    made = lower(quantized, "ethos-u85-256")
    assert [v.operator for v in made.report.rejected] == OUTSIDE
    assert all(layer.quantized for layer in made.report.layers) and made.report.layers
    assert_same_as_reference(made)
    with torch.no_grad():
        eager, rounded = quantized.model(*quantized.inputs), quantized.converted(*quantized.inputs)
    assert likeness(rounded, eager) > 30


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256"])
def test_other_npus_say_what_they_need(target: str) -> None:
    torch.manual_seed(0)
    made = lower(quantize((LAYERS["padded"]().eval(), (torch.randn(1, 4, 4, 6, 6),)), "a8w8", target), target)
    (layer,) = made.report.layers
    assert not layer.quantized and not made.groups
    assert f"need a U85; got {target}" in str(made.report)
