"""Pruning and clustering of weights: what becomes of the weights, and of the results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgewright as ew
from edgewright.api.recipe import as_recipe
from edgewright.errors import EdgewrightError, UsageError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU())
        self.pointwise = nn.Conv2d(16, 32, 1, bias=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.pointwise(self.depthwise(self.stem(x))))
        result: torch.Tensor = self.head(y.mean((2, 3)))
        return result


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    network = Net().train()
    with torch.no_grad():
        for _ in range(4):
            network(images(8))
    return network.eval()


def images(count: int) -> torch.Tensor:
    """Smooth images, as photographs are: neighbors resemble each other."""
    return nn.functional.interpolate(torch.randn(count, 3, 4, 4), size=(12, 12), mode="bilinear")


def calls(count: int = 8) -> list[tuple[torch.Tensor]]:
    torch.manual_seed(1)
    return [(images(1),) for _ in range(count)]


def zeros(module: nn.Module) -> float:
    return float((module.weight == 0).float().mean())  # type: ignore[operator]


def error(small: nn.Module, net: nn.Module) -> float:
    torch.manual_seed(2)
    x = images(32)
    with torch.no_grad():
        return float((small(x) - net(x)).square().mean() / net(x).square().mean())


def test_pruning(net: nn.Module) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    small = ew.compress(net, calls()[0], calls(), sparsity=0.75)
    assert zeros(small.pointwise) == zeros(small.head) == 0.75
    assert zeros(small.stem[0]) == pytest.approx(0.75, abs=0.01)
    assert zeros(small.depthwise[0]) == 0 and not small.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    magnitude = Net().eval()
    magnitude.load_state_dict(net.state_dict())
    with torch.no_grad():
        for layer in (magnitude.stem[0], magnitude.pointwise, magnitude.head):
            layer.weight[layer.weight.abs() <= layer.weight.abs().quantile(0.75)] = 0
    assert error(small, net) < 0.5 * error(magnitude, net)


@pytest.mark.parametrize(("sparsity", "clusters"), [(0.0, 16), (0.5, 32)])
def test_clusters_are_values_of_int8(net: nn.Module, sparsity: float, clusters: int) -> None:
    small = ew.compress(net, calls()[0], calls(), sparsity=sparsity, clusters=clusters)
    for layer, original in ((small.pointwise, net.pointwise), (small.head, net.head)):
        rows = layer.weight.detach().flatten(1)
        scale = rows.abs().amax(1, keepdim=True)
        torch.testing.assert_close(scale, original.weight.detach().flatten(1).abs().amax(1, keepdim=True))
        stored = rows / scale * 127
        torch.testing.assert_close(stored, stored.round(), rtol=0, atol=1e-3)
        assert len(np.unique(stored.round().numpy())) <= clusters
        assert zeros(layer) >= sparsity
    assert error(small, net) < 0.1


def test_excluded_modules_are_unchanged(net: nn.Module) -> None:
    small = ew.compress(net, calls()[0], calls(2), sparsity=0.5, exclude=["stem"])
    assert torch.equal(small.stem[0].weight, net.stem[0].weight)
    assert zeros(small.head) == 0.5


def test_results_do_not_depend_on_the_number_of_threads(net: nn.Module) -> None:
    data = calls(6)
    batch = [(torch.cat([x for (x,) in data]),)]
    first, second = (ew.compress(net, d[0], d, sparsity=0.5) for d in (data, batch))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_recipe(net: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('quantize = "int8"\n[compress]\nsparsity = 0.75\nexclude = ["stem"]\n')
    recipe = as_recipe(tmp_path / "r.toml", None)
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert as_recipe(tmp_path / "again.toml", None) == recipe
    options = {"calibration": calls(), "check": False, "evaluate": 2, "quiet": True}
    dense = ew.compile(net, calls()[0], "ethos-u55-128", quantize="int8", **options)
    small = ew.compile(net, calls()[0], "ethos-u55-128", recipe=recipe, **options)
    sizes = [result.report.estimates[0]["weights"]["encoded"] for result in (small, dense)]
    assert sizes[0] < 0.7 * sizes[1]
    assert small.report.sqnr is not None and dense.report.sqnr is not None
    assert small.report.sqnr < dense.report.sqnr  # against the model before compression


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.first(x) if x.sum() > 0 else self.second(self.second(x))
        return result


def test_rejections(net: nn.Module) -> None:
    data = calls(2)
    for options, rule in (
        ({"sparsity": 1.0}, "sparsity: must be a share"),
        ({"clusters": 3}, "clusters: must be from 4 to 255"),
        ({}, "must be told a sparsity"),
        ({"sparsity": 0.5, "exclude": ["steam"]}, "exclude: must name modules of the model"),
        ({"sparsity": 0.5, "exclude": "stem"}, "must be a list of module names"),
        ({"sparsity": 0.5, "exclude": ["stem", "pointwise", "head"]}, "must have a linear layer"),
    ):
        with pytest.raises(UsageError, match=rule):
            ew.compress(net, data[0], data, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs example inputs"):
        ew.compress(net, sparsity=0.5)
    with pytest.raises(UsageError, match="same layers for every input"):
        ew.compress(Branch(), torch.ones(1, 4), [torch.ones(1, 4), -torch.ones(1, 4)], sparsity=0.5)
    with pytest.raises(EdgewrightError, match="compress"):
        as_recipe({"compress": {"speed": 1}}, None)
    with pytest.raises(UsageError, match="needs calibration data"):
        ew.compile(net, data[0], recipe={"compress": {"sparsity": 0.5}}, quiet=True)
