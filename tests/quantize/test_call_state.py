"""Methods of better rounding for models with state: every call finds what those before it left."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as fn

import edgewright as ew
from edgewright.api.best import split
from edgewright.api.data import Call
from edgewright.quantize.call_state import contents, restored_state, state_names, states_before
from edgewright.quantize.layer_walk import LayerSamples, adjust_layers
from edgewright.quantize.layers import find_layers
from edgewright.quantize.simulate import ExactRun, Simulation
from tests.quantize.test_channel_scales import TARGETS, prepared

_LENGTH, _WIDTH, _HEADS = 12, 16, 2


class Attention(nn.Module):
    """A decoder layer with a key-value cache, whose feed-forward part has channels of very different size."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = nn.LayerNorm(_WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(_WIDTH, 24), nn.Linear(24, _WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, _HEADS, _LENGTH, _WIDTH // _HEADS))
        with torch.no_grad():
            sizes = torch.logspace(-1.5, 1.5, 24)
            self.up.weight *= sizes[:, None]
            self.down.weight /= sizes

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        query, key, value = (
            layer(y).view(1, 1, _HEADS, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        mask = torch.where(torch.arange(_LENGTH)[None] <= position, 0.0, -math.inf)
        read = fn.scaled_dot_product_attention(query, self.keys, self.values, mask)
        x = x + self.out(read.transpose(1, 2).reshape(1, 1, -1))
        result: torch.Tensor = x + self.down(fn.relu(self.up(x)))
        return result


class Cell(nn.Module):
    """A recurrent cell, which copies its result to its state. ``calls`` is state that nothing else reads."""

    hidden: torch.Tensor
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.inside, self.again, self.out = nn.Linear(_WIDTH, 24), nn.Linear(24, 24), nn.Linear(24, 5)
        self.register_buffer("hidden", torch.zeros(1, 1, 24))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(torch.tanh(self.inside(x) + self.again(self.hidden)))
        self.calls.add_(1)
        result: torch.Tensor = self.out(self.hidden) + 0 * position
        return result


MODELS = [Attention, Cell]


def sequence(count: int = 24, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randn(1, 1, _WIDTH, generator=draw), torch.tensor([n % _LENGTH])) for n in range(count)]


def calibrated(model: nn.Module, data: list[Any], target: str) -> Any:
    module = prepared(model, "int8", data, target)
    with torch.no_grad(), restored_state(module):
        for call in data:
            module(*call)
    return module


def in_sequence(interpreter: Any, data: list[Any]) -> list[torch.Tensor]:
    with torch.no_grad(), restored_state(interpreter.module):
        return [interpreter.run(*call)[0].clone() for call in data]


@pytest.mark.parametrize("kind", MODELS)
def test_state_before_a_call_is_what_the_calls_before_it_left(kind: type[nn.Module]) -> None:
    data, module = sequence(), calibrated(kind(), sequence(), "xnnpack")
    names = state_names(module)
    assert names == (["keys", "values"] if kind is Attention else ["calls", "hidden"])
    initial = contents(module)
    with torch.no_grad():
        found = states_before(ExactRun(module), data, [0, 5, 11])
    assert all(torch.equal(contents(module)[name], initial[name]) for name in names)
    for number, state in zip((0, 5, 11), found, strict=True):
        model = kind()
        with torch.no_grad():
            for call in data[:number]:
                model(*call)
        assert all(torch.allclose(state[name], getattr(model, name), atol=1e-6) for name in names)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", MODELS)
def test_a_walk_sees_what_the_model_computes_in_sequence(kind: type[nn.Module], target: str) -> None:
    """With nothing changed, what layers should compute and what they read is, bit for bit, that of complete runs."""
    data, module = sequence(), calibrated(kind(), sequence(), target)
    layers = {layer.node: layer for layer in find_layers(module)}
    expected: dict[str, dict[Any, list[torch.Tensor]]] = {"exact": {}, "inputs": {}}

    class Exact(ExactRun):
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if n in layers:
                expected["exact"].setdefault(n, []).append(result.clone())
            return result

    class Rounded(Simulation):
        def run_node(self, n: Any) -> Any:
            if n in layers:
                expected["inputs"].setdefault(n, []).append(self.env[layers[n].source].clone())
            return super().run_node(n)

    in_sequence(Exact(module), data)
    in_sequence(Rounded(module), data)
    seen = []

    def method(samples: LayerSamples) -> None:
        seen.append(samples.layer.node)
        for name, wanted in expected.items():
            actual = getattr(samples, name)
            assert len(actual) == len(data)
            assert all(torch.equal(a, b) for a, b in zip(actual, wanted[samples.layer.node], strict=True)), name

    with torch.no_grad():
        assert adjust_layers(module, data, [method]) == len(seen) == len(layers)


@pytest.mark.parametrize(
    ("kind", "target", "precision", "gain"),
    [
        (Attention, "e9955", "int8+equalize", 0.3), (Attention, "e9955", "int8+bias", 1.0),
        (Attention, "e9955", "int8+adaround", 0.3), (Cell, "ethos-u55-128", "a8w4+adaround", 0.3),
    ],
)  # fmt: skip
def test_methods_gain(kind: type[nn.Module], target: str, precision: str, gain: float) -> None:
    data, others = sequence(64), sequence(24, 1)
    sqnr = []
    for name in (precision.partition("+")[0], precision):
        model = kind()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        result = ew.compile(model, data[0], target, quantize=name, calibration=data, evaluate=others, quiet=True)
        sqnr.append(result.report.sqnr or 0.0)
        assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert sqnr[1] > sqnr[0] + gain, sqnr


@pytest.mark.parametrize("kind", MODELS)
def test_best_methods_are_measured_in_sequence(kind: type[nn.Module]) -> None:
    """The figure of the preset alone is that of a model which learns and is measured on the same calls."""
    data = sequence(32)
    report = ew.compile(
        kind(), data[0], "xnnpack", quantize="int8-best", calibration=data, evaluate=0, samples=32, quiet=True
    ).report
    assert [trial.precision for trial in report.trials][:2] == ["int8", "int8+equalize"]
    assert any("adaround" in trial.precision for trial in report.trials)
    samples = split([Call(call) for call in data], in_sequence=True)
    learn, choose = ([call.args for call in part] for part in (samples.calibration, samples.evaluation))
    same = ew.compile(
        kind(), data[0], "xnnpack", quantize="int8", calibration=learn, evaluate=choose, samples=32, quiet=True
    ).report
    assert same.sqnr is not None and report.trials[0].sqnr == pytest.approx(same.sqnr, abs=0.5)


def test_a_metric_leaves_nothing_in_the_state_of_the_model_that_is_searched() -> None:
    """The original's metric is evaluated before the model is stored."""
    data, model = sequence(16), Cell()

    def metric(call: Any) -> float:
        values = [float(torch.as_tensor(call(*(x.numpy() for x in inputs))[0]).sum()) for inputs in data]
        return -abs(sum(values))

    found = ew.search(
        model,
        data[0],
        "xnnpack",
        calibration=data,
        metric=metric,
        max_drop=1e9,
        precisions=["int8"],
        trials=1,
        quiet=True,
    )
    again = ew.compile(Cell(), data[0], "xnnpack", calibration=data, recipe=found.recipe, quiet=True)
    assert again.buffer == found.program
    assert float(model.hidden.abs().max()) == 0.0 == float(model.calls)


def test_a_search_mixes_precisions_of_a_model_that_copies_to_its_state() -> None:
    """Writes of state are no units: no recipe can name them."""
    data = sequence(32)
    found = ew.search(
        Cell(), data[0], "e9955", calibration=data, min_sqnr=45, minimize="size", precisions=["int8", "a16w16"],
        trials=4, quiet=True,
    )  # fmt: skip
    assert not found.findings.failures and any(", " in point.name for point in found.points)


class Overwriting(nn.Module):
    """Writes to its input, which an application passes again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(x)
        x.add_(1)
        return y


def test_calibration_inputs_that_a_model_writes_to_are_unchanged() -> None:
    data = [torch.full((1, 4), n / 8) for n in range(8)]
    module = prepared(Overwriting(), "int8", [x.clone() for x in data])
    for x in data:
        module(x.clone())
    calls = [(x.clone(),) for x in data]
    with torch.no_grad():
        adjust_layers(module, calls, [lambda samples: None])
    assert all(torch.equal(call[0], x) for call, x in zip(calls, data, strict=True))
