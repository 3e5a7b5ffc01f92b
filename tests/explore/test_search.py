"""Precision search, end to end: what it finds, that it goes on where it was, and what it rejects."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewright as ew
from edgewright.cli import search as command
from edgewright.errors import AccuracyError, EdgewrightError, UsageError
from edgewright.explore import precision_search, tasks
from edgewright.explore.precision_search import SearchResult
from edgewright.explore.proposer import Proposer
from edgewright.explore.search import Search
from edgewright.explore.store import Store
from tests.cli.cli import Cli
from tests.explore import search_nets

pytest.importorskip("distributed", reason="distributed is not installed")
NETS = "tests.explore.search_nets"


def search(target: str = "xnnpack", **options: Any) -> SearchResult:
    options = {"calibration": search_nets.data(), "quiet": True, **options}
    return ew.search(search_nets.small(), torch.zeros(1, 1, 8, 8), target, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def found(folder: Path) -> SearchResult:
    """Smallest, whose order does not depend on measured times."""
    return search(output=folder, min_sqnr=50, minimize="size", precisions=["int8", "float"], trials=6)


def test_a_mixture_is_smaller_than_floating_point_and_accurate(found: SearchResult) -> None:
    assert found.best.within_limits and found.best.sqnr >= 50 and not found.unmet
    by_name = {point.name: point for point in found.points}
    assert by_name["int8"].sqnr < 50 < by_name["float"].sqnr
    assert found.best.bytes < by_name["float"].bytes / 2
    assert found.best.pareto and found.findings.evaluated_on == "held-out"


def test_the_recipe_makes_the_same_program(found: SearchResult, folder: Path, tmp_path: Path) -> None:
    for recipe in (found.recipe, folder / "best.toml", *[p for p in found.save(tmp_path) if p.suffix == ".toml"]):
        result = ew.compile(
            search_nets.small(), torch.zeros(1, 1, 8, 8), recipe=recipe, calibration=search_nets.data(), quiet=True
        )  # fmt: skip
        assert result.buffer == found.program == (folder / "best.pte").read_bytes()
        assert result.report.sqnr == found.best.sqnr


def test_a_second_run_compiles_nothing_and_finds_the_same(
    found: SearchResult, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("compile_row", "measure_errors"):
        monkeypatch.setattr(tasks, name, None)
    again = search(output=folder, min_sqnr=50, minimize="size", precisions=["int8", "float"], trials=6)
    assert again.recipe == found.recipe and again.to_dict() == found.to_dict()


def test_a_search_that_was_stopped_goes_on(
    found: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when a program is finished, in the second round; its best is there."""
    record, count = Store.record, [0]

    def dying(self: Store, key: str, outcome: Any) -> None:
        record(self, key, outcome)
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "record", dying)
    options: dict[str, Any] = {"min_sqnr": 50, "minimize": "size", "precisions": ["int8", "float"], "trials": 6}
    with pytest.raises(KeyboardInterrupt):
        search(output=tmp_path, **options)
    monkeypatch.undo()
    assert ew.compile(
        search_nets.small(), torch.zeros(1, 1, 8, 8), recipe=tmp_path / "best.toml", calibration=search_nets.data(),
        quiet=True,
    ).buffer == (tmp_path / "best.pte").read_bytes()  # fmt: skip
    done = len(Store(tmp_path).outcomes())
    assert done == 3
    again = search(output=tmp_path, **options)
    assert again.recipe == found.recipe and [p.key for p in again.points] == [p.key for p in found.points]


def test_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    options: dict[str, Any] = {"precisions": ["int8", "float"], "trials": 4, "minimize": "size"}
    result = search(metric=search_nets.error, better="lower", max_drop="0.01%", **options)
    assert result.task.goal.original == 1.0 and result.task.goal.score_limit == pytest.approx(1.0001)
    assert result.best.within_limits and 1.0 <= result.best.metric <= 1.0001
    assert max(p.metric for p in result.points) > 1.0001  # int8


def test_without_time_only_single_precisions_are_compiled(found: SearchResult, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    options: dict[str, Any] = {"min_sqnr": 50, "minimize": "size", "precisions": ["int8", "float"], "trials": 6}
    result = search(output=tmp_path / "copy", budget=0.0, **options)
    assert [p.name for p in result.points] == ["int8", "float"] and result.best.name == "float"


def test_limits_that_cannot_be_met_are_reported(found: SearchResult) -> None:
    result = search(min_sqnr=190, max_size=10, precisions=["int8", "float"], trials=2)
    assert not result.best.within_limits and len(result.unmet) == 2
    assert "SQNR: must be 190 dB or more; the best of 2 programs has" in result.unmet[0]
    assert "size: must be 10 B or less; the smallest program has" in result.unmet[1] and "over" in result.unmet[1]


def test_a_recipe_decides_some_layers(tmp_path: Path) -> None:
    recipe = {"modules": {"block": "float"}, "operators": {"max_pool2d": "float"}}
    result = search(recipe=recipe, min_sqnr=30, precisions=["int8", "float"], trials=3)
    for point in result.points:
        assert point.recipe["modules"]["block"] == "float" and point.recipe["operators"]["max_pool2d"] == "float"


def test_methods_that_gain_round_proposals_and_the_best() -> None:
    result = search(
        methods="mse-weights+adaround", min_sqnr=50, minimize="size", precisions=["int8", "float"], trials=5
    )
    by_name = {point.name: point for point in result.points}
    assert by_name["int8+mse-weights+adaround"].sqnr > by_name["int8"].sqnr
    mixed = [point for point in result.points if ", " in point.name]
    assert mixed and all(point.recipe["quantize"] == "int8+mse-weights+adaround" for point in mixed)
    assert result.best.within_limits and result.recipe.for_target("xnnpack").methods == ("mse-weights", "adaround")
    again = ew.compile(search_nets.small(), torch.zeros(1, 1, 8, 8), recipe=result.recipe,
                       calibration=search_nets.data(), quiet=True)  # fmt: skip
    assert again.buffer == result.program


@pytest.mark.parametrize("limit", [{"budget": 0.0}, {"trials": 2}])
def test_methods_are_not_tried_beyond_the_limits_of_a_search(limit: dict[str, Any]) -> None:
    result = search(methods="mse-weights", min_sqnr=10, minimize="size", precisions=["int8", "float"], **limit)
    assert [point.name for point in result.points] == ["int8", "float"] and result.best.name == "int8"


def test_the_best_is_rounded_better_within_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last program is the best one with methods, in place of a proposal."""
    monkeypatch.setattr(Search, "_try_methods", lambda self, proposer, *_: setattr(proposer, "methods", ("mse",)))
    monkeypatch.setattr(Proposer, "next", lambda self, *_: [{**self.uniform("int8"), "head": "float"}])
    options: dict[str, Any] = {"min_sqnr": 10, "minimize": "size", "precisions": ["int8", "float"]}
    result = search(methods="mse", trials=3, **options)
    assert [point.name for point in result.points] == ["int8", "float", "int8 +mse"]


def test_methods_that_do_not_gain_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(work: Any, *inputs: Any) -> Any:
        assert work.row.recipe["quantize"] == "int8-best"
        return {"methods": ["percentile"]}

    monkeypatch.setattr(tasks, "choose_methods", choose)
    result = search(methods="best", min_sqnr=190, precisions=["int8", "float"], trials=4)
    by_name = {point.name: point for point in result.points}
    assert by_name["int8+percentile"].sqnr < by_name["int8"].sqnr
    assert not any("percentile" in name for name in by_name if name != "int8+percentile")


def test_the_best_methods_are_chosen_on_calibration_data() -> None:
    result = search(methods="best", min_sqnr=10, minimize="size", precisions=["int8", "float"], trials=4)
    plain = next(point for point in result.points if point.name == "int8")
    assert result.best.bytes == plain.bytes and result.best.sqnr >= plain.sqnr


def test_the_best_methods_include_headroom_if_a_preset_has_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are chosen for int8, which cannot tell."""
    monkeypatch.setattr(tasks, "choose_methods", lambda work, *inputs: {"methods": ["mse-weights"]})
    for presets in (["int8", "a16w8"], ["int8"]):
        result = search("ethos-u55-128", methods="best", min_sqnr=40, precisions=presets, trials=6)
        assert "int8+mse-weights" in [point.name for point in result.points]
        assert ("headroom" in str([point.recipe for point in result.points])) == (presets != ["int8"])


def test_headroom_is_tried_where_it_changes_something() -> None:
    """Of a program with 8-bit activations only, it made another that was the same."""
    result = search("ethos-u55-128", methods="headroom", min_sqnr=40, precisions=["int8", "a16w8"], trials=6)
    names = [point.name for point in result.points]
    assert names[:3] == ["int8", "a16w8", "a16w8+headroom"]
    for point in result.points:
        used = {(point.recipe["quantize"] or "float").partition("+")[0], *point.recipe["modules"].values()}
        assert "headroom" not in str(point.recipe) or "a16w8" in used
    alone = search("ethos-u55-128", methods="headroom", min_sqnr=10, precisions=["int8"], trials=3)
    assert [point.name for point in alone.points] == ["int8"]


def test_16_bit_activations_have_headroom_unless_methods_are_named() -> None:
    for methods, name in (("", "a16w8+headroom"), ("none", "a16w8"), ("adaround", "a16w8")):
        result = search("ethos-u55-128", methods=methods, min_sqnr=40, precisions=["int8", "a16w8"], trials=2)
        assert [point.name for point in result.points] == ["int8", name]
        assert result.best.recipe["quantize"] == name
    plain = ew.compile(search_nets.small(), torch.zeros(1, 1, 8, 8), "ethos-u55-128", calibration=search_nets.data(),
                       quantize="a16w8", quiet=True)  # fmt: skip
    assert result.program == plain.buffer


def test_unsigned_activations_are_not_proposed_beside_signed_ones() -> None:
    """Exynos does not have both in one model, and they differ in nothing else."""
    signed, unsigned = (search("e9955", min_sqnr=1, trials=1, **options) for options in
                        ({}, {"precisions": ["ua8w8", "ua16w16", "float"]}))  # fmt: skip
    assert list(signed.task.presets) == ["int8", "a16w16", "float"]
    assert list(unsigned.task.presets) == ["ua8w8", "ua16w16", "float"]


def test_rounding_is_learned_if_no_quantized_program_is_accurate() -> None:
    """So that layers need not be in floating point, and only then: it takes time."""
    options: dict[str, Any] = {"minimize": "size", "precisions": ["int8", "float"]}
    names = [point.name for point in search(min_sqnr=50, trials=6, **options).points]
    assert names[:3] == ["int8", "float", "int8+adaround"] and all("adaround" in name for name in names[3:])
    assert [point.name for point in search(min_sqnr=20, trials=6, **options).points] == ["int8", "float"]
    assert "adaround" not in str([p.recipe for p in search(min_sqnr=50, trials=4, methods="none", **options).points])


def test_learned_rounding_that_gains_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "_least_gain", lambda self: 100.0)
    points = search(min_sqnr=50, minimize="size", precisions=["int8", "float"], trials=5).points
    assert [point.name for point in points if "adaround" in str(point.recipe)] == ["int8+adaround"]
    assert len(points) > 3


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "ethos-u55-12"}, "Did you mean ethos-u55-128"),
        ({"max_drop": "1%"}, "max_drop: is of a metric, and there is none"),
        ({"metric": search_nets.error, "min_sqnr": 20.0}, "min_sqnr: is the limit without a metric"),
        ({"metric": search_nets.error, "max_drop": "much"}, "max_drop: must be a number that is not negative"),
        ({"minimize": "latenci"}, "Did you mean latency?"),
        ({"max_latency": 0.0}, "max_latency: must be more than 0"),
        ({"precisions": ["int9"]}, "Did you mean int8?"),
        ({"precisions": ["higher"]}, "to choose from must be one of int8, dynamic, dynamic-w4, float; got higher"),
        ({"recipe": {"modules": {"block.frist": "int8"}}}, "Did you mean block.first?"),
        ({"recipe": {"modules": {"block": "a16w8"}}}, "must be a preset of xnnpack"),
        ({"recipe": {"operators": {"max_pol2d": "int8"}}}, "Did you mean max_pool2d?"),
        ({"metric": f"{NETS}:eror"}, "Did you mean error?"),
        ({"calibration": search_nets.data(1)}, "needs inputs to calibrate with, and others to measure on"),
        ({"sampels": 3}, "Did you mean samples?"),
        (
            {"target": "e9955", "recipe": {"modules": {"block": "ua16w16"}}, "precisions": ["int8"]},
            "must have signed or unsigned activations: e9955 does not have both in one model; got int8, ua16w16",
        ),
        ({"target": "e9955", "precisions": ["int8", "ua8w8"]}, "got int8, ua8w8"),
        ({"methods": "adaruond"}, "Did you mean adaround?"),
        ({"methods": "mse+percentile"}, "must have one of the methods percentile and mse"),
    ],
)
def test_bad_input_is_rejected_before_any_program_is_compiled(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision_search, "connect", None)
    with pytest.raises(EdgewrightError) as error:
        search(**options)
    assert message in str(error.value)


def test_a_metric_that_raises_is_reported_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_search, "connect", None)
    with pytest.raises(AccuracyError) as error:
        search(metric=f"{NETS}:raising")
    assert "raised KeyError: 'no such label'" in str(error.value)
    assert 'return {}["no such label"]' in str(error.value) and "search_nets.py" in str(error.value)


def test_a_metric_must_be_finite_for_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_search, "connect", None)
    with pytest.raises(AccuracyError) as error:
        search(metric=lambda model: float("nan"))
    assert "metric: must return a finite number, for the original model; got nan\n  Return one" in str(error.value)


def test_a_drop_is_in_percent_of_the_original_or_in_units_of_the_metric() -> None:
    for drop, limit in (("2%", 49.0), (2, 48.0), ("0.5", 49.5)):
        request = precision_search.Request(search_nets.error, drop)
        assert request.goal(50.0).score_limit == pytest.approx(limit)
    with pytest.raises(UsageError):
        precision_search.parse_drop("-1%")


# ----------------------------------------------------------------------------------------------------- command line


def test_results_are_shown(cli: Cli, found: SearchResult, folder: Path) -> None:
    shown = cli("search", "--show", folder)
    assert shown.code == 0 and "the smallest with SQNR of 50 dB or more" in shown.out
    (best,) = [line.split() for line in shown.out.splitlines() if line.startswith("*  ")]
    assert best[-1] == "within" and f"{found.best.sqnr:.1f}" in best
    plain = json.loads(cli("search", "--show", folder, "--json").out)
    assert plain == json.loads(found.to_json())


def test_methods_are_advised_if_the_best_needs_the_cpu(found: SearchResult) -> None:
    points = [replace(p, delegated_macs=0.75 if p.best else 1.0) for p in found.points]
    on_cpu = replace(found.findings, points=points)
    advice = command._advice(found.task, on_cpu)
    assert "the CPU computes 25.0% of the best: --methods best" in advice
    assert not command._advice(replace(found.task, methods="mse"), on_cpu)
    assert not command._advice(found.task, replace(on_cpu, points=[replace(p, delegated_macs=0.75) for p in points]))


def test_the_page(cli: Cli, folder: Path, found: SearchResult, tmp_path: Path) -> None:
    assert "wrote" in cli("search", "--show", folder, "--html", tmp_path / "s.html").out
    page = (tmp_path / "s.html").read_text()
    assert 'class="frontier"' in page and "the best within the limits" in page and "Search: small on xnnpack" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "takes one of: a model, --resume FOLDER, --show FOLDER; got nothing"),
        (["net:a", "--resume", "r"], "takes one of"),
        (["net:a", "--target", "xnnpack"], "--calibrate: is required"),
        (["--resume", "r", "--min-sqnr", "3"], "--min-sqnr: is of a new search, and --resume has its own"),
        (["net:a", "--calibrate", "x", "--max-latency", "5"], "must be a number and a unit"),
        (["net:a", "--calibrate", "x", "--max-size", "big"], "not a size: 'big'"),
        (["net:a", "--calibrate", "x", "--trials", "0"], "--trials: must be 1 or more"),
        (["net:a", "--calibrate", "x", "--target", "xnnpack", "--target", "sm8550"], "must be a single device"),
    ],
)
def test_options_are_checked(cli: Cli, options: list[str], message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shown = cli("search", *options)
    assert shown.code == 2 and message in shown.err and not list(tmp_path.iterdir())


def test_a_folder_of_a_sweep_is_no_search(cli: Cli, tmp_path: Path) -> None:
    Store(tmp_path, create=True).close()
    shown = cli("search", "--show", tmp_path)
    assert shown.code == 3 and "must be the folder of a search" in shown.err
