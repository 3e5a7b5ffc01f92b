"""``compare``: the guilty layer comes first, layers that only move values are innocent, and raising helps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import edgewright as ew
from edgewright.api.compare import Comparison, LayerError, compare
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe
from edgewright.backends.targets import find_target
from edgewright.errors import VendorError
from tests.api.models import Words, calls, spoiled


def bench(recipe: Recipe) -> CompileSession:
    model = spoiled()
    return CompileSession(model, model.example_inputs(), calls(), Settings(recipe, evaluate=2), Stages(quiet=True))


@pytest.fixture(scope="module", params=["ethos-u55-128", "xnnpack"])
def found(request: pytest.FixtureRequest) -> Comparison:
    return compare(bench(Recipe("int8")), find_target(request.param))


def layers(found: Comparison) -> dict[str, LayerError]:
    return {layer.module or layer.name: layer for layer in found.layers}


def test_the_guilty_layer_is_first(found: Comparison) -> None:
    assert found.layers[0].module == "bad"
    assert found.layers[0].share > 0.5
    assert sum(layer.share for layer in found.layers) == pytest.approx(1.0)
    assert found.layers[0].readers == ["after"]


def test_layers_are_blamed_for_what_they_add_only(found: Comparison) -> None:
    by = layers(found)
    assert by["last"].fake < 20  # everything before it has spoiled it
    assert by["last"].introduced > 30
    assert by["max_pool2d"].introduced == 200  # moves values
    assert by["max_pool2d"].fake < 60  # but has what it was given
    assert by["x"].operator == "input"


def test_the_device_is_near_what_was_predicted(found: Comparison) -> None:
    assert found.device == pytest.approx(found.fake, abs=2)
    assert found.note == ""
    for layer in found.layers:
        assert layer.device == pytest.approx(layer.fake, abs=3), layer.name


def test_a_vendor_that_refuses_so_many_outputs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgewright.api import compare as module

    made = module._run_with_layer_outputs

    def refuse(bench: CompileSession, target: Any, converted: Any, seen: Any) -> Any:
        if seen:
            raise VendorError("Vela", "must keep the graph's outputs")
        return made(bench, target, converted, seen)

    monkeypatch.setattr(module, "_run_with_layer_outputs", refuse)
    found = compare(bench(Recipe("int8")), find_target("xnnpack"))
    assert found.note == "Vela: must keep the graph's outputs"
    assert found.device == pytest.approx(found.fake, abs=2)
    assert all(layer.device is None for layer in found.layers)


def test_raising_what_it_says_helps(found: Comparison) -> None:
    assert found.modules_to_raise() == ["bad", "after"]
    assert found.raised is not None and found.raised > found.fake + 10
    assert found.raised_device is not None and found.device is not None and found.raised_device > found.device + 10
    recipe = found.recipe(Recipe("int8"))
    result = ew.compile(spoiled(), calls(1)[0], found.target, recipe=recipe, calibration=calls(), evaluate=2)
    assert result.report.sqnr == pytest.approx(found.raised, abs=2)


def test_a_recipe_of_the_users_is_kept(found: Comparison) -> None:
    given = Recipe("int8", {"first": "float"}, {}, {found.target: Recipe(None, {"last": "float"})})
    made = found.recipe(given)
    assert made.modules == {"first": "float"}
    assert made.targets[found.target].modules == {"last": "float", "bad": "higher", "after": "higher"}


def test_without_the_device() -> None:
    found = compare(bench(Recipe("int8")), find_target("xnnpack"), device=False)
    assert found.device is None
    assert all(layer.device is None for layer in found.layers)


def test_nothing_to_raise() -> None:
    layer = LayerError("a", "m", "conv2d", 200, 200, 200)
    assert Comparison("xnnpack", "int8", [layer]).candidates() == []
    assert Comparison("xnnpack", "int8", [layer]).to_dict()["raise"] == []


@pytest.mark.parametrize("target", ["xnnpack", "ethos-u55-128"])
def test_indices_names_and_several_outputs(target: str) -> None:
    data = [{"ids": torch.randint(0, 10, (1, 6)), "mask": torch.ones(1, 6)} for _ in range(4)]
    made = CompileSession(Words().eval(), data[0], data, Settings(Recipe("int8"), evaluate=2), Stages(quiet=True))
    found = compare(made, find_target(target))
    assert {"fc", "norm"} <= {layer.module for layer in found.layers}
    assert found.device == pytest.approx(found.fake, abs=3)
