"""Decisions that measuring may overrule: every option computes the same; what was found is kept, used and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.cli import main
from edgewright.engine import CompiledGraph, compile, make_plan, tune, tuning
from edgewright.engine.isa import host_isa
from edgewright.engine.jit.cache import default_cache
from edgewright.engine.tuning_params import TuningParams, load_tuned, store_tuned, tuned_fingerprint
from edgewright.ir.graph import Graph
from tests.engine.graphs import cpus, random
from tests.engine.lower.test_conv import conv

CASES: dict[str, dict[str, Any]] = {
    "pixels": {"shape": (1, 9, 7, 24), "channels": 40, "kernel": (1, 1)},
    "one pixel": {"shape": (1, 1, 1, 96), "channels": 200, "kernel": (1, 1)},
    "window": {"shape": (2, 9, 8, 20), "channels": 48, "kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)},
    "3x3": {"shape": (1, 8, 8, 64), "channels": 64, "kernel": (3, 3), "padding": (1, 1, 1, 1)},
}
MANY = [name for name in CASES if name != "one pixel"]  # of bytes, there is one way to do a pixel


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_CACHE", str(tmp_path / "cache"))


def made(name: str, quantize: bool) -> Graph:
    given = dict(CASES[name])
    return conv(given.pop("shape"), given.pop("channels"), given.pop("kernel"), quantize=quantize, **given)


def decisions(graph: Graph, cpu: str, tuned: dict[str, int]) -> dict[str, int]:
    """How many options each has."""
    params = TuningParams(tuned)
    make_plan(graph, 1, cpu=cpu, tuning=params)
    return {d.key: len(d.options) for d in params.decisions}


def run(graph: Graph, cpu: str, tuned: dict[str, int]) -> Any:
    plan = make_plan(graph, 1, cpu=cpu, tuning=TuningParams(tuned))
    return CompiledGraph(plan, 1).run([random(graph.inputs[0])])[0]


@pytest.mark.sample(5)
@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize(("name", "quantize"), [*((name, False) for name in CASES), *((n, True) for n in MANY)])
def test_every_option_computes_the_same(name: str, quantize: bool, cpu: str) -> None:
    graph = made(name, quantize)
    known = decisions(graph, cpu, {})
    want = run(graph, cpu, {})
    assert known
    for at in range(1, max(known.values())):
        tuned = {key: at for key, count in known.items() if at < count}
        inner = dict.fromkeys(set(decisions(graph, cpu, tuned)) - set(known), 1)  # another way has other tiles
        got = run(graph, cpu, {**tuned, **inner})
        bound = 0 if quantize else 1e-5 * np.abs(want).max()
        assert np.abs(got.astype(np.float64) - want).max() <= bound


def prefer_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if options were the faster the later they come."""

    def measure(bench: Any, form: Any) -> list[float]:
        taken = {d.node: d.chosen for d in form.params.decisions}
        steps = {i: taken.get(node, 0) for node, places in form.params.steps.items() for i in places}
        return [1000.0 / (1 + steps.get(i, 0)) for i in range(len(form.graph.plan.steps))]

    monkeypatch.setattr(tuning._Tuner, "_measure", measure)


@pytest.mark.parametrize("quicker", [True, False])
def test_what_was_found_is_kept_if_all_of_it_is_faster(monkeypatch: pytest.MonkeyPatch, quicker: bool) -> None:
    graph = made("pixels", quantize=True)
    prefer_the_last(monkeypatch)
    monkeypatch.setattr(tuning._Tuner, "compare", lambda bench, threads: (2e6, 1e6) if quicker else (1e6, 2e6))
    before = [step.kernel for step in compile(graph, 1).plan.steps]
    result = tune(graph, 1)
    assert result.kept == quicker
    assert [c.kind for c in result.changes] == ["tile"]
    assert result.changes[0].rule != result.changes[0].chosen
    assert (result.rule_ms, result.chosen_ms) == ((2.0, 1.0) if quicker else (1.0, 2.0))
    after = [step.kernel for step in compile(graph, 1).plan.steps]
    assert (before != after) == quicker
    assert bool(load_tuned(host_isa(), 1)) == quicker
    assert not load_tuned(host_isa(), 2)  # other threads, other tiles


def test_tuning_measures_and_results_stay(tmp_path: Path) -> None:
    graph = made("3x3", quantize=True)
    want = compile(graph, 1).run([random(graph.inputs[0])])[0]
    told: list[str] = []
    result = tune(graph, 1, on_round=told.append)
    assert told[0] == "algorithm: option 1 of 2"
    assert result.decisions >= 1
    assert result.measured >= 1
    assert result.rule_ms > 0
    np.testing.assert_array_equal(compile(graph, 1).run([random(graph.inputs[0])])[0], want)
    assert json.loads(json.dumps(result.data()))["kept"] == result.kept


def test_numbers_that_are_no_options_are_not_used() -> None:
    graph = made("pixels", quantize=True)
    key = next(iter(decisions(graph, "", {})))
    usual = [s.kernel for s in make_plan(graph, 1).steps]
    for at in (99, -1):
        assert [s.kernel for s in make_plan(graph, 1, tuning=TuningParams({key: at})).steps] == usual


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"a": "b"}', b"\xff"])
def test_a_damaged_store_is_as_none(text: bytes) -> None:
    store_tuned(host_isa(), 1, {"a": 1})
    name = default_cache().entries()[0].name.removesuffix(".o")
    default_cache().put(name, text)
    assert load_tuned(host_isa(), 1) == {}


def test_what_was_found_before_stays() -> None:
    store_tuned(host_isa(), 1, {"a": 1, "b": 2})
    old = tuned_fingerprint(host_isa(), 1)
    store_tuned(host_isa(), 1, {"b": 0, "c": 3})
    assert load_tuned(host_isa(), 1) == {"a": 1, "c": 3}  # 0 is the rule's own
    assert tuned_fingerprint(host_isa(), 1) != old  # plans that were stored are made again


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(Path(__file__).parents[1] / "golden" / "conv_relu_int8_pc_xnnpack.pte")
    assert main(["tune", path, "--threads", "1", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned[0]["measured"] > 0
    assert main(["tune", path, "--threads", "0"]) == 2
    assert "must be 1 to 256" in capsys.readouterr().err
