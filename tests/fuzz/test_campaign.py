"""The fuzzer itself: what is counted, what becomes a finding, and what a run that stopped goes on with."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import campaign, loop
from tests.fuzz.campaign import Progress, State
from tests.fuzz.table import BEGIN, END, PAGE, table, write_table
from tests.fuzz.targets import GOALS, TARGETS, Result, Target


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "WORK", tmp_path)


def target(execute: Callable[[bytes, int], Result], seconds: int = 20) -> Target:
    def mutate(data: bytes, chance: random.Random) -> bytes:
        return data + chance.randbytes(4)

    return Target("fake", 100, lambda: [b"seed"], lambda: mutate, execute, seconds=seconds, batch=10)


def test_executions_are_counted_over_processes() -> None:
    done = loop.run_slice(target(lambda data, number: Result()), seed=1, runs=25, seconds=60)
    assert (done.executions, done.findings) == (25, [])


def test_an_exception_is_a_finding_and_its_file_is_kept(tmp_path: Path) -> None:
    def execute(data: bytes, number: int) -> Result:
        if number == 7:
            raise KeyError("missing")
        return Result()

    done = loop.run_slice(target(execute), seed=1, runs=12, seconds=60)
    assert done.executions == 12
    assert [finding.category for finding in done.findings] == ["foreign"]
    assert "KeyError" in done.findings[0].reason
    (kept,) = (tmp_path / "findings" / "fake").iterdir()
    assert kept.read_bytes().startswith(b"seed")
    assert "\t7\t" in (tmp_path / "findings.tsv").read_text()


def test_a_process_that_dies_is_a_finding_and_the_others_go_on() -> None:
    def execute(data: bytes, number: int) -> Result:
        if number == 3:
            os.kill(os.getpid(), 9)
        return Result()

    done = loop.run_slice(target(execute), seed=1, runs=12, seconds=60)
    assert done.executions == 12
    assert [finding.category for finding in done.findings] == ["crash"]


def test_an_execution_that_does_not_end_is_a_finding() -> None:
    def execute(data: bytes, number: int) -> Result:
        if number == 1:
            time.sleep(600)
        return Result()

    done = loop.run_slice(target(execute, seconds=1), seed=1, runs=3, seconds=60)
    assert done.executions == 3
    assert [finding.category for finding in done.findings] == ["slow"]


def test_files_that_reach_something_new_are_kept(tmp_path: Path) -> None:
    def execute(data: bytes, number: int) -> Result:
        return Result(features="even" if number % 2 == 0 else "odd")

    loop.run_slice(target(execute), seed=1, runs=15, seconds=60)
    assert sorted((tmp_path / "seen-fake").read_text().split()) == ["even", "odd"]
    assert len(list((tmp_path / "fake").iterdir())) == 2


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(5, "2026-01-01", "2026-01-02", 1.5, ["abc"], {"fake": Progress(10, 4, 2, {"crash: x": 3})})
    state.save(tmp_path / "state.json")
    loaded = State.load(tmp_path / "state.json")
    assert loaded == state
    assert (loaded.executions, loaded.found) == (10, 1)
    seeds = []
    monkeypatch.setattr(campaign, "run_slice", lambda _, seed, runs, limit: seeds.append(seed) or loop.Slice(runs))
    for executions in (12, 14):
        campaign.run_next(loaded, target(lambda data, number: Result()), seconds=60)
        assert loaded.executions == executions
    assert seeds == [7, 8], "two slices were executed before, with the seeds 5 and 6"


def test_states_of_several_processes_are_added() -> None:
    state = State(5, "2026-01-02", "2026-01-02", 1.0, ["abc"], {"pte": Progress(10, 4, 2, {"crash: x": 1})})
    other = State(90, "2026-01-01", "2026-01-03", 2.0, ["abc", "def"],
                  {"pte": Progress(7, 0, 3, {"crash: x": 2, "slow: y": 1}), "run": Progress(1, 1, 1)})  # fmt: skip
    state.merge(other)
    pte = Progress(17, 4, 88, {"crash: x": 3, "slow: y": 1})  # the next seed is 93, which neither had
    assert state == State(5, "2026-01-01", "2026-01-03", 3.0, ["abc", "def"], {"pte": pte, "run": Progress(1, 1, 86)})


def test_the_page_shows_the_state_of_the_repository() -> None:
    state = State.load(campaign.STATE)
    assert set(state.targets) <= set(TARGETS)
    assert table(state) in PAGE.read_text(), "python -m tests.fuzz table"


def test_the_target_that_is_furthest_from_its_goal_is_next() -> None:
    state = State(0)
    for name in TARGETS:
        state.of(name).executions = TARGETS[name].goal
    assert campaign.next_target(state, TARGETS) is None
    state.of("run").executions = GOALS["run"] // 2
    chosen = campaign.next_target(state, TARGETS)
    assert chosen is not None and chosen.name == "run"


def test_goals_are_ten_million_executions() -> None:
    assert sum(target.goal for target in TARGETS.values()) == 10_000_000
    assert sum(target.goal for name, target in TARGETS.items() if name.startswith("diff-")) >= 100_000


def test_the_table_is_written_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_table(State(5, "2026-01-01", "2026-01-02", 1.5, ["abc"], {"pte": Progress(1234, 4, 2)}), page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert "old" not in text
    assert "| `pte` | 1,234 | 4 | 0 |" in text
    assert "seeds 5 to 6" in text
