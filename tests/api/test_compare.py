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


def test_methods_change_what_is_compared() -> None:
    """Layers are those of the file, with their biases corrected."""
    target, recipe = find_target("xnnpack"), Recipe("int8+bias")
    session = bench(recipe)
    found = compare(session, target)
    assert found.device == pytest.approx(session.build(target).report.sqnr, abs=1e-6)
    assert found.device != pytest.approx(compare(bench(Recipe("int8")), target).device, abs=1e-3)


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


class Recurrent(torch.nn.Module):
    """Half of the result is carried to the next call: in a buffer, or by the caller."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.read, self.mix, self.out = (torch.nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("state", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        before = self.state if state is None else state
        after = torch.relu(self.read(x) + self.mix(before)) / 2
        if state is None:
            self.state.copy_(after)
        result: torch.Tensor = self.out(after)
        return result


def test_layers_of_a_model_with_state_are_measured_in_the_state_of_their_call() -> None:
    """The same layers, with the state as an input that has what the original's state had."""
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 8, generator=generator) for _ in range(24)]
    model, states = Recurrent().eval(), []
    with torch.no_grad():
        for first in range(0, len(inputs), 12):  # calibration and evaluation both start from zero
            model.state.zero_()
            for x in inputs[first : first + 12]:
                states.append(model.state.clone())
                model(x)
    model.state.zero_()

    def layers_of(data: list[tuple[torch.Tensor, ...]]) -> dict[str, LayerError]:
        settings = Settings(Recipe("int8"), evaluate=data[12:])
        session = CompileSession(model, data[0], data[:12], settings, Stages(quiet=True))
        return layers(compare(session, find_target("xnnpack")))

    by_caller = layers_of(list(zip(inputs, states, strict=True)))
    by_buffer = layers_of([(x,) for x in inputs])
    assert model.state.eq(0).all()
    for name in ("read", "mix", "out"):
        assert by_buffer[name].introduced == pytest.approx(by_caller[name].introduced, abs=0.1), name
        assert by_buffer[name].effect == pytest.approx(by_caller[name].effect, abs=2), name
    assert by_buffer["out"].fake > 20 and by_buffer["out"].device == pytest.approx(by_buffer["out"].fake, abs=3)


def test_another_program_of_the_session_starts_in_the_state_of_the_model() -> None:
    """A report of several files quantizes once; each file is measured from the first input on."""
    data = [torch.rand(1, 8) for _ in range(8)]
    settings = Settings(Recipe("int8"), evaluate=4)
    session = CompileSession(Recurrent().eval(), (data[0],), data, settings, Stages(quiet=True))
    session.quantization.keeps_models = True
    first, second, short = (compare(session, find_target("xnnpack"), inputs=count) for count in (None, None, 1))
    assert second.device == pytest.approx(first.device, abs=1e-6) and second.fake == first.fake
    assert (short.samples, second.samples) == (1, 2) and short.fake != first.fake


class Magnitude(torch.nn.Module):
    """The length of vectors, whose squares span many orders of magnitude."""

    def __init__(self) -> None:
        super().__init__()
        self.basis = torch.nn.Linear(8, 8, bias=False)
        torch.nn.init.eye_(self.basis.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        real, imaginary = self.basis(x).chunk(2, 1)
        return torch.sqrt(real**2 + imaginary**2)


def test_an_error_does_not_make_squares_negative() -> None:
    # 0.05 is rounded up to two steps, and its square down to none: by more than the exact square.
    data = [(torch.tensor([[4.0, -4.0, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0]]),)] * 4
    settings = Settings(Recipe("int8"), evaluate=2)
    session = CompileSession(Magnitude().eval(), data[0], data, settings, Stages(quiet=True))
    found = compare(session, find_target("xnnpack"), device=False)
    squares = [layer for layer in found.layers if "pow" in layer.operator]
    assert len(squares) == 2 and all(layer.effect > 0 for layer in squares)
