"""Equalization and smoothing: the same results in floating point, and channels of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

import edgewright as ew
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.progress import Stages
from edgewright.api.recipe import as_recipe
from edgewright.backends.targets import find_target
from edgewright.errors import UsageError
from edgewright.quantize.channel_scales import GATE, LAYER, NORM, find_junctions
from edgewright.quantize.evaluate import Sqnr
from tests.quantize.test_preparation import settle

TARGETS = ("xnnpack", "ethos-u55-128", "sm8650", "e9955", "imxrt700")


class Uneven(nn.Module):
    """Layers whose channels differ by a factor of up to a hundred, in all the ways that scales pass."""

    def __init__(self, seed: int, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        groups = [1, 8, 4][seed % 3]
        self.first, self.middle = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=groups)
        self.norm = nn.BatchNorm2d(8)
        self.last, self.fc, self.out = nn.Conv2d(8, 6, 1, bias=False), nn.Linear(6 * 4, 5), nn.Linear(5, 3)
        self.activation = activation
        with torch.no_grad():
            for layer in (self.first, self.middle, self.last):
                layer.weight *= 10 ** (torch.rand(len(layer.weight), 1, 1, 1, generator=draw) * 2 - 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = fn.max_pool2d(self.activation(self.norm(self.first(x))), 2)
        y = fn.avg_pool2d(self.activation(self.last(self.activation(self.middle(y)))), 2)
        result: torch.Tensor = self.out(fn.relu(self.fc(y.flatten(1))))
        return result


class Gated(nn.Module):
    """A transformer's feed-forward part, whose norms have a few large channels."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.norm: nn.Module = nn.LayerNorm(16) if norm == "layer" else nn.RMSNorm(16)
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24, bias=False), nn.Linear(24, 16)
        with torch.no_grad():
            self.norm.weight[::5] *= 40
            for layer in (self.gate, self.up):
                layer.weight[:, ::5] /= 40
            self.up.weight[::7] *= 20

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(fn.silu(self.gate(y)) * self.up(y))


def images(count: int = 12, size: int = 8) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(9)
    return [torch.randn(1, 3, size, size, generator=draw) for _ in range(count)]


def rows(count: int = 12) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(9)
    return [torch.randn(1, 6, 16, generator=draw) for _ in range(count)]


def prepared(model: nn.Module, precision: str, data: list[Any], target: str = "e9955") -> Any:
    settings = Settings(as_recipe(None, precision), evaluate=0)
    session = CompileSession(model, data[0], data, settings, Stages(quiet=True))
    return session.quantization.prepare(find_target(target), settings.recipe)


@pytest.mark.parametrize("activation", [fn.relu, fn.leaky_relu, fn.relu6], ids=["relu", "leaky_relu", "relu6"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(6)
def test_equalized_networks_compute_the_same_in_floating_point(seed: int, activation: Any) -> None:
    model = settle(Uneven(seed, activation))
    data = images()
    plain, equalized = prepared(model, "int8", data), prepared(model, "int8+equalize", data)
    with torch.no_grad():
        for x in data:
            expected, actual = plain(x), equalized(x)
            assert float((expected - actual).norm() / expected.norm()) < 1e-5
            torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_only_beyond_the_headroom_may_relu6_end_earlier() -> None:
    """Inputs like those of the calibration, but a fifth larger, are not clamped either."""
    model, data = settle(Uneven(0, fn.relu6)), images()
    plain, equalized = prepared(model, "int8", data), prepared(model, "int8+equalize", data)
    first = [next(n for n in m.graph.nodes if "hardtanh" in n.name or "relu6" in n.name) for m in (plain, equalized)]
    assert first[0].target == first[1].target
    small = [x * 0.2 for x in data]
    with torch.no_grad():
        for x in small:
            torch.testing.assert_close(plain(x), equalized(x), rtol=1e-4, atol=1e-4)


def test_the_users_model_is_unchanged() -> None:
    model, data = settle(Uneven(1, fn.relu)), images()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prepared(model, "int8+equalize+adaround+bias", data)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_and_gates_are_smoothed(norm: str) -> None:
    model, data = Gated(norm).eval(), rows()
    kinds = {j.producer.kind for j in find_junctions(prepared(model, "int8", data))}
    assert kinds == {NORM, GATE}
    plain, smoothed = prepared(model, "int8", data), prepared(model, "int8+smooth", data)
    weights = [dict(m.named_parameters()) for m in (plain, smoothed)]
    assert not torch.equal(weights[0]["down.weight"], weights[1]["down.weight"])
    with torch.no_grad():
        for x in data:
            torch.testing.assert_close(plain(x), smoothed(x), rtol=1e-4, atol=1e-4)


def sqnr(model: nn.Module, precision: str, data: list[torch.Tensor], target: str) -> float:
    result = ew.compile(model, (data[0],), target, quantize=precision, calibration=data, evaluate=data[-4:], quiet=True)
    assert result.report.check.inputs and result.report.precision == precision
    meter = Sqnr()
    for x in data[-4:]:
        meter.add(model(x).detach().numpy(), result.run(x).numpy())
    return meter.decibels


@pytest.mark.parametrize("target", ["xnnpack", "e9955"])
def test_large_channels_no_longer_cost_the_others_precision(target: str) -> None:
    model, data = Gated("layer").eval(), rows()
    assert sqnr(model, "int8+smooth", data, target) > sqnr(model, "int8", data, target) + 1


def test_uneven_layers_gain_by_equalization() -> None:
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 1)), images(16)
    with torch.no_grad():
        model[0].weight[0] *= 30
        model[2].weight[:, 0] /= 30
    assert sqnr(model, "int8+equalize", data, "e9955") > sqnr(model, "int8", data, "e9955") + 6


class Shared(nn.Module):
    """Nothing here may be scaled: what two layers read is also returned, or added, or has two readers of a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.a(x).relu()
        z = fn.gelu(self.b(y))
        return self.c(z) + y, self.c(x).sigmoid()


def test_what_others_read_or_bends_is_not_scaled() -> None:
    assert find_junctions(prepared(Shared().eval(), "int8", images())) == []


def test_layers_between_are_junctions() -> None:
    junctions = find_junctions(prepared(settle(Uneven(1, fn.relu)), "int8", images()))
    assert [j.producer.kind for j in junctions] == [LAYER] * 4
    assert [j.producer.repeat for j in junctions] == [1, 1, 4, 1]


def test_methods_need_data() -> None:
    with pytest.raises(UsageError, match="method 'equalize' for xnnpack: needs calibration data"):
        ew.compile(Gated("rms").eval(), (rows(1)[0],), "xnnpack", quantize="dynamic+equalize", quiet=True)


def test_dynamic_quantization_can_be_smoothed() -> None:
    model, data = Gated("layer").eval(), rows()
    assert sqnr(model, "dynamic+smooth", data, "xnnpack") > sqnr(model, "dynamic", data, "xnnpack")
