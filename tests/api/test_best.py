"""``int8-best``: what it tries, what it keeps, and on which data it is measured."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

import edgewright as ew
from edgewright.api import best
from edgewright.api.best import split
from edgewright.api.compile_report import Trial
from edgewright.api.data import Call
from edgewright.errors import AccuracyError, UsageError
from tests.quantize.test_channel_scales import Gated, rows


def compiled(precision: str = "int8-best", **options: Any) -> Any:
    model, data = Gated("layer").eval(), rows(20)
    options = {"calibration": data, "evaluate": 4, "quiet": True, **options}
    return ew.compile(model, (data[0],), "e9955", quantize=precision, **options)


def test_what_is_kept_is_what_is_compiled() -> None:
    result = compiled()
    report = result.report
    assert report.trials[0].precision == "int8" and report.trials[0].kept
    kept = [trial for trial in report.trials if trial.kept]
    assert all(later.better_than(earlier, 0.05) for earlier, later in pairwise(kept))
    assert "smooth" in kept[-1].precision and len(report.trials) == 8
    plain = compiled("int8").report
    assert report.sqnr > plain.sqnr + 3
    assert report.evaluated_on == plain.evaluated_on == "held-out" and report.check.inputs
    assert f"chose {kept[-1].precision}: {kept[-1].score}, int8 " in result.summary
    assert compiled(kept[-1].precision).buffer == result.buffer  # what the name gives, without a search
    assert report.to_dict()["trials"][0]["precision"] == "int8"


def test_three_parts_of_the_data_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods learn from one part, are chosen by another, and the report measures on the third."""
    from edgewright.api.compile import CompileSession
    from edgewright.api.quantization import QuantizationPipeline

    chosen_by: list[list[str]] = []
    learned: list[list[str]] = []
    results_of, with_calls = CompileSession.results_of, QuantizationPipeline.with_calls

    def watch_results(self: Any, calls: Any, model: Any = None) -> Any:
        if model is not None:
            chosen_by.append([call.subject for call in calls])
        return results_of(self, calls, model)

    def watch_calls(self: Any, calls: Any) -> Any:
        learned.append([call.subject for call in calls])
        return with_calls(self, calls)

    monkeypatch.setattr(CompileSession, "results_of", watch_results)
    monkeypatch.setattr(QuantizationPipeline, "with_calls", watch_calls)
    report = compiled().report
    assert report.samples == 4
    everything = {f"calibration input {n}" for n in range(20)}
    parts = [set(learned[0]), set(chosen_by[0]), everything - set(learned[0]) - set(chosen_by[0])]
    assert [len(part) for part in parts] == [12, 4, 4]
    assert all(set(numbers) == parts[1] for numbers in chosen_by) and len(chosen_by) == len(report.trials)


def test_a_metric_of_its_own_chooses() -> None:
    def worst_channel(model: Callable[..., Any]) -> float:
        exact = Gated("layer").eval()
        with torch.no_grad():
            return -max(float((exact(x) - torch.as_tensor(model(x))).abs().max()) for x in rows(30)[-8:])

    report = compiled(select=worst_channel).report
    scores = [trial.metric for trial in report.trials]
    kept = [trial.metric for trial in report.trials if trial.kept]
    assert None not in scores and kept == sorted(kept) and kept[-1] == max(scores)
    assert report.metric is None


def test_a_gain_that_is_one_inputs_is_not_kept() -> None:
    before = best._Tried(Trial("int8", 30.0), (30.0, 30.1, 29.9, 30.0))
    everywhere = best._Tried(Trial("int8+mse", 30.4), (30.4, 30.5, 30.3, 30.4))
    at_one = best._Tried(Trial("int8+mse", 30.4), (30.4, 30.5, 30.3, 28.0))
    assert everywhere.gains_over(before) and not at_one.gains_over(before) and not before.gains_over(before)
    by_metric = best._Tried(Trial("int8+mse", 29.0, 0.9), at_one.without)
    assert by_metric.gains_over(best._Tried(Trial("int8", 30.0, 0.8), before.without))


def test_errors() -> None:
    def broken(model: Any) -> float:
        raise ValueError("no data")

    with pytest.raises(AccuracyError, match="select: raised ValueError: no data"):
        compiled(select=broken)
    with pytest.raises(AccuracyError, match="select: must return a finite number; got nan"):
        compiled(select=lambda model: float("nan"))
    with pytest.raises(UsageError, match="select: is the metric that a preset chooses methods by"):
        compiled("int8", select=broken)
    with pytest.raises(UsageError, match="needs at least 4 calibration inputs"):
        compiled(calibration=rows(2), evaluate=0)
    with pytest.raises(UsageError, match="must be a preset of e9955"):
        compiled("int9-best")
    with pytest.raises(UsageError, match="chooses the methods itself"):
        compiled("int8-best+bias")


def test_every_fourth_input_chooses() -> None:
    samples = split([Call((n,)) for n in range(16)])
    assert [call.args[0] for call in samples.evaluation] == [3, 7, 11, 15]


@pytest.mark.parametrize("target", ["xnnpack", "imxrt700"])
@pytest.mark.slow
def test_other_targets(target: str) -> None:
    model, data = Gated("rms").eval(), rows(16)
    result = ew.compile(model, (data[0],), target, quantize="int8-best", calibration=data, quiet=True)
    plain = ew.compile(model, (data[0],), target, quantize="int8", calibration=data, quiet=True)
    assert (result.report.sqnr or 0) >= (plain.report.sqnr or 0) - 0.5
