"""Networks on this machine and in LiteRT: the same integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.networks import NETWORKS
from tests.support import cifar


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_one_delegate_and_compute_what_litert_does(name: str) -> None:
    torch.manual_seed(0)
    kind, shape = NETWORKS[name]
    samples = [(torch.randn(shape),) for _ in range(8)]
    lowered = Lowered(kind(), samples[0], samples)
    assert lowered.whole, str(lowered.report)
    for (x,) in samples[:4]:
        assert np.array_equal(lowered.host(x), lowered.litert(x))


@pytest.mark.parametrize("per_channel", [True, False])
def test_mobilenet(per_channel: bool) -> None:
    calibration = [(x,) for x in cifar.calibration(32)]
    lowered = Lowered(cifar.mobilenet(), calibration[0], calibration, per_channel)
    assert lowered.whole, str(lowered.report)
    for x in cifar.images(3).split(1):
        assert np.array_equal(lowered.host(x), lowered.litert(x))


def _lost(count: int) -> float:
    """Points of accuracy that quantization costs, by LiteRT's reference kernels, which the host's integers are."""
    model, calibration = cifar.mobilenet(), [(x,) for x in cifar.calibration(64)]
    lowered = Lowered(model, calibration[0], calibration)
    return cifar.accuracy(model, count) - cifar.accuracy(lambda x: torch.from_numpy(lowered.host(x)), count)


def test_accuracy_of_a_hundred_images() -> None:
    assert _lost(100) <= 2.0


@pytest.mark.slow
def test_accuracy_of_a_thousand_images() -> None:
    assert _lost(1000) <= 0.5
