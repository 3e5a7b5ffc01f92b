"""Networks on this machine and in LiteRT: the same integers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from edgewright.runtime import Profile
from tests.backends.nxp.lowered import Lowered
from tests.backends.nxp.networks import NETWORKS, TRAINED
from tests.engine.graphs import cpus
from tests.support import cifar


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_one_delegate_and_compute_what_litert_does(name: str) -> None:
    torch.manual_seed(0)
    kind, shape = NETWORKS[name]
    samples = [(torch.randn(shape),) for _ in range(8)]
    lowered = Lowered(kind(), samples[0], samples)
    assert lowered.whole, str(lowered.report)
    for (x,) in samples[:4]:
        assert np.array_equal(lowered.host(x), lowered.litert(x))
    profile = Profile()
    lowered.method.execute([x.numpy() for x in samples[0]], profile=profile)
    assert "engine" in str(profile) and "numpy" not in str(profile)


@pytest.mark.sample(1)
@pytest.mark.parametrize("cpu", cpus())
def test_every_instruction_set_agrees_with_litert(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CPU", cpu)
    torch.manual_seed(0)
    kind, shape = NETWORKS["resnet8"]
    samples = [(torch.randn(shape),) for _ in range(2)]
    lowered = Lowered(kind(), samples[0], samples)
    assert np.array_equal(lowered.host(*samples[1]), lowered.litert(*samples[1]))


@cache
def trained(name: str, per_channel: bool = True) -> Lowered:
    calibration = [(x,) for x in cifar.calibration(128)]
    return Lowered(TRAINED[name](), calibration[0], calibration, per_channel)


@pytest.mark.slow
def test_mobilenet_with_one_scale_for_each_weight() -> None:
    lowered = trained("mobilenetv2", per_channel=False)
    assert lowered.whole, str(lowered.report)
    for x in cifar.images(3).split(1):
        assert np.array_equal(lowered.host(x), lowered.litert(x))


def lost(name: str, count: int) -> float:
    """Points of accuracy that quantization costs, on this machine; and each of its results is LiteRT's."""
    lowered = trained(name)
    assert lowered.whole, str(lowered.report)

    def classify(x: Tensor) -> Tensor:
        made = lowered.host(x)
        assert np.array_equal(made, lowered.litert(x))
        return torch.from_numpy(made)

    before, after = cifar.accuracy(TRAINED[name](), count), cifar.accuracy(classify, count)
    print(f"{name}, {count} images: {before:.1f} % as real numbers, {after:.1f} % in 8 bits")
    return round(before - after, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_hundred_images(name: str) -> None:
    assert lost(name, 100) <= 2.0  # two images


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_thousand_images(name: str) -> None:
    assert lost(name, 1000) <= 0.5
