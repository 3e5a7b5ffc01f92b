"""Files and arenas are no larger than those stock makes of the same networks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from edgewright.program.config import ExecutorchBackendConfig
from edgewright.program.edge import to_edge_transform_and_lower
from tests.program.networks import MODELS

SMALL = ("cifarnet", "vit", "decoder", "upscaler")
STOCK = json.loads((Path(__file__).parents[1] / "golden" / "stock_sizes.json").read_text())["models"]


@cache
def sizes(name: str) -> tuple[int, int]:
    """The bytes of our file without its manifest, and of the arena."""
    model, inputs = MODELS[name]()
    exported = torch.export.export(model, inputs)
    made = to_edge_transform_and_lower(exported).to_executorch(ExecutorchBackendConfig(manifest=False))
    (plan,) = made.executorch_program.execution_plan
    return len(made.buffer), sum(plan.non_const_buffer_sizes)


def test_stock_was_measured_on_every_network() -> None:
    assert list(STOCK) == list(MODELS)


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", STOCK)
def test_the_file_is_no_larger_than_stocks(name: str) -> None:
    assert sizes(name)[0] <= STOCK[name]["bytes"]


@pytest.mark.sample(*SMALL)
@pytest.mark.parametrize("name", STOCK)
def test_the_arena_is_no_larger_than_stocks(name: str) -> None:
    assert sizes(name)[1] <= STOCK[name]["arena"]
