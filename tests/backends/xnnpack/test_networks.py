"""Whole networks on XNNPACK: eager torch, we and stock agree; groups, files and arenas are no worse than stock's."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from tests.backends.lowered import Lowered
from tests.backends.networks import CONVOLUTIONAL, NETWORKS

SMALL = ("cifarnet", "mobilenet_v3", "vit")
STOCK = json.loads((Path(__file__).parents[2] / "golden" / "stock_xnnpack_sizes.json").read_text())["models"]


@cache
def lowered(name: str) -> Lowered:
    model, inputs = NETWORKS[name]()
    return Lowered(model, inputs)


@cache
def sizes(name: str) -> tuple[int, int, int]:
    """The bytes of our file without manifest and layer names, of the arena, and the number of delegates."""
    model, inputs = NETWORKS[name]()
    edge = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[XnnpackPartitioner()])
    made = edge.to_executorch(ExecutorchBackendConfig(manifest=False, layer_names=False))
    (plan,) = made.executorch_program.execution_plan
    return len(made.buffer), sum(plan.non_const_buffer_sizes), len(plan.delegates)


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compute_the_same_in_stock_and_here(name: str) -> None:
    lowered(name).check(NETWORKS[name]()[1], 1e-4)


@pytest.mark.sample("cifarnet", "mobilenet_v3")
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_convolutional_networks_are_one_delegate(name: str) -> None:
    assert lowered(name).whole, str(lowered(name).report)


def test_stock_was_measured_on_every_network() -> None:
    assert set(STOCK) == set(NETWORKS)


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", STOCK)
def test_files_are_no_larger_than_stocks(name: str) -> None:
    assert sizes(name)[0] <= STOCK[name]["bytes"]


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", STOCK)
def test_arenas_are_no_larger_than_stocks(name: str) -> None:
    assert sizes(name)[1] <= STOCK[name]["arena"]


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", STOCK)
def test_there_are_no_more_delegates_than_in_stocks(name: str) -> None:
    assert sizes(name)[2] <= STOCK[name]["delegates"]
