"""Convolutions of volumes: whole on a U85, by planes on other NPUs, with the reference model's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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


STRIDED: dict[str, Callable[[], nn.Module]] = {
    "planes left out": lambda: nn.Conv3d(4, 6, 3, padding=1, stride=(2, 1, 3)),
    "planes left out, with gaps": lambda: nn.Conv3d(4, 6, (2, 1, 1), stride=(3, 1, 1), dilation=(3, 1, 1)),
    "a stride of planes above 3": lambda: nn.Conv3d(4, 6, 1, stride=(4, 1, 1)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*LAYERS, *STRIDED])
@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["ethos-u55-128", pytest.param("ethos-u65-512", marks=pytest.mark.slow)])
@pytest.mark.parametrize("config", ["a8w8", pytest.param("a16w8", marks=pytest.mark.slow)])
def test_other_npus_convolve_planes(name: str, batch: int, target: str, config: str) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(batch, 4, 7, 6, 6),)
    quantized = quantize(((LAYERS | STRIDED)[name]().eval(), inputs), config, target)
    made = lower(quantized, target)
    assert [v.operator for v in made.report.rejected] == OUTSIDE
    assert_same_as_reference(made)
    ((device, _, _),) = made.groups
    data = [np.random.default_rng(0).integers(-128, 128, v.bound).astype(v.dtype) for v in device.inputs]
    (expected,) = lower(quantized, "ethos-u85-256").reference(data)  # by TOSA's own convolution of volumes
    np.testing.assert_array_equal(made.reference(data)[0].ravel(), expected.ravel())


def test_a_long_stride_within_a_plane_is_a_reason() -> None:
    torch.manual_seed(0)
    layer = nn.Conv3d(4, 6, 1, stride=(1, 4, 1)).eval()
    made = lower(quantize((layer, (torch.randn(1, 4, 4, 6, 6),)), "a8w8", "ethos-u55-128"), "ethos-u55-128")
    assert not made.groups and "at most 3 in height and width on U55 and U65; got [4, 1]" in str(made.report)
