"""Figures are of data that calibration has not seen, and results that are poor or not compared say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import edgewright as ew
from edgewright.api import compare as comparing
from edgewright.api.accuracy import accuracy
from edgewright.api.compare import Attempt, compare
from edgewright.api.compile import CompileSession, Settings
from edgewright.api.data import Call, hold_out
from edgewright.api.progress import Stages
from edgewright.api.recipe import Recipe
from edgewright.backends.targets import find_target
from tests.api.models import Words, calls, net, spoiled


def numbers(count: int, most: int = 128, evaluated: int = 8) -> tuple[list[Any], list[Any], str]:
    found = hold_out([Call((n,)) for n in range(count)], most, evaluated)
    return [c.args[0] for c in found.calibration], [c.args[0] for c in found.evaluation], found.origin


def test_what_is_measured_on_is_not_calibrated_with() -> None:
    for count in range(2, 60):
        for most, evaluated in ((128, 8), (10, 8), (40, 1)):
            seen, held, origin = numbers(count, most, evaluated)
            assert origin == "held-out" and held and not set(seen) & set(held)
            assert len(held) <= evaluated and len(seen) <= most
            assert len(seen) + len(held) == min(count, most + evaluated) or len(seen) == most
            assert len(held) <= max(1, len(seen) // 2) or len(seen) == most
    assert numbers(100) == (sorted(set(range(100)) - set(numbers(100)[1])), numbers(100)[1], "held-out")
    assert len(numbers(100)[1]) == 8


def test_of_calls_that_depend_on_each_other_the_last_are_held_out() -> None:
    """The others would have gaps, and states that no application sees."""

    class Sum(torch.nn.Module):
        total: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * x

    data = [torch.full((1,), float(n)) for n in range(12)]
    session = CompileSession(Sum(), data[0], data, Settings(Recipe("int8")), Stages(quiet=True))
    assert [float(call.args[0]) for call in session.calls] == list(range(9))
    assert [float(call.args[0]) for call in session.evaluated] == [9, 10, 11]


def test_of_one_input_nothing_can_be_held_out() -> None:
    assert numbers(1) == ([0], [0], "calibration")
    assert numbers(4, evaluated=0) == ([0, 1, 2, 3], [], "calibration")
    result = ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls(1))
    assert result.report.evaluated_on == "calibration"
    assert "on the calibration data itself (1 input), which flatters it" in result.summary


def compiled(**options: Any) -> Any:
    return ew.compile(net(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls(), **options)


def test_what_figures_are_of() -> None:
    report = compiled().report
    assert (report.evaluated_on, report.samples) == ("held-out", 2)
    assert "against the original on 2 held-out inputs" in compiled().summary
    bench = CompileSession(net(), calls(1)[0], calls(), Settings(Recipe("int8")), Stages(quiet=True))
    seen = {c.args[0].sum().item() for c in bench.calls}
    assert len(seen) == 6 and not seen & {c.args[0].sum().item() for c in bench.evaluated}
    other = compiled(evaluate=[x * 2 for x in calls(3)]).report
    assert (other.evaluated_on, other.samples) == ("given", 3)
    assert other.sqnr != report.sqnr
    assert ew.compile(net(), calls(1)[0], "xnnpack").report.evaluated_on == "example"


def test_every_input_is_calibrated_with_if_others_are_given() -> None:
    bench = CompileSession(net(), calls(1)[0], calls(), Settings(Recipe("int8"), evaluate=calls(2)), Stages(quiet=True))
    assert len(bench.calls) == 8


def test_names_in_another_order() -> None:
    """Files know inputs by their place, data by their name."""
    data = [{"ids": torch.randint(0, 10, (1, 6)), "mask": torch.ones(1, 6)} for _ in range(4)]
    turned = [dict(reversed(item.items())) for item in data]
    reports = [
        ew.compile(Words().eval(), data[0], "xnnpack", quantize="int8", calibration=d).report for d in (data, turned)
    ]
    assert reports[0].sqnr == reports[1].sqnr is not None


def test_a_model_that_is_quantized_already() -> None:
    quantized = compiled().exported
    alone = ew.compile(quantized, None, "xnnpack", calibration=calls(4))
    assert alone.report.sqnr is None
    assert "not compared with a float model: it is quantized already" in alone.summary
    beside = ew.compile(quantized, None, "xnnpack", calibration=calls(4), original=net())
    assert beside.report.sqnr is not None and 20 < beside.report.sqnr < 60
    exported = torch.export.export(net(), (calls(1)[0],))
    again = ew.compile(quantized, None, "xnnpack", calibration=calls(4), original=exported)
    assert again.report.sqnr == beside.report.sqnr


def test_a_large_output_does_not_hide_a_small_one() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x * 1000, (x > 0), x.argmax(1)

    nodes = torch.export.export(Two(), (torch.ones(2, 3),)).graph.output_node().args[0]
    wanted = [np.array([[1e3, 2e3, 3e3]]), np.array([[True, False, True]]), np.array([2])]
    given = [np.array([[1e3, 2e3, 3e3]]), np.array([[True, True, True]]), np.array([0])]
    found = accuracy(nodes, [(wanted, given)])
    assert (found.sqnr, found.outputs, found.agreement) == (200.0, (200.0, None, None), 0.0)
    pair = accuracy([None, None], [([np.full(4, 1e3), np.full(4, 1e-3)], [np.full(4, 1e3), np.zeros(4)])])
    assert pair.outputs == (200.0, 0.0) and pair.sqnr == 0.0
    result = ew.compile(Two(), torch.rand(2, 3), "xnnpack")
    assert result.report.agreement == 1.0 and "indices and bools: 100.0% equal" in result.summary


def test_poor_results_are_told() -> None:
    result = ew.compile(spoiled(), calls(1)[0], "xnnpack", quantize="int8", calibration=calls())
    assert result.report.poor
    assert "poor: under 20 dB" in result.summary
    assert not compiled().report.poor


# ---------------------------------------------------------------------------------------------------------- advice


def bench() -> CompileSession:
    return CompileSession(spoiled(), calls(1)[0], calls(), Settings(Recipe("int8"), evaluate=2), Stages(quiet=True))


def test_advice_is_measured_before_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways, and on data that was not calibrated with; what does not help is not recommended."""
    made: list[list[str]] = []

    def attempt(better: float, device: float) -> Any:
        def measured(bench: CompileSession, target: Any, found: Any, modules: list[str]) -> Attempt:
            made.append(modules)
            return Attempt(modules, found.fake + better, found.device + device)

        return measured

    monkeypatch.setattr(comparing, "_attempt", attempt(-2.0, -2.0))
    found = compare(bench(), find_target("xnnpack"))
    assert found.evaluated_on == "held-out" and found.samples == 2
    assert found.modules_to_raise() == [] and found.raised is None
    assert [a.modules for a in found.tried] == made and len(made) == 2
    assert found.recipe(Recipe("int8")) == Recipe("int8")
    assert found.to_dict()["raise"] == [] and len(found.to_dict()["tried"]) == 2
    monkeypatch.setattr(comparing, "_attempt", attempt(5.0, 0.1))
    assert compare(bench(), find_target("xnnpack")).modules_to_raise() == []
    monkeypatch.setattr(comparing, "_attempt", attempt(5.0, 5.0))
    assert compare(bench(), find_target("xnnpack")).modules_to_raise() == made[0]
