"""The table of a fuzzing run in ``docs/soundness.md``."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.campaign import State
from tests.fuzz.targets import ROOT, TARGETS

PAGE = ROOT / "docs" / "soundness.md"
BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"


def write_table(state: State, page: Path = PAGE) -> None:
    text = page.read_text()
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(state)}\n{END}{rest.split(END)[1]}")


def table(state: State) -> str:
    goal = sum(target.goal for target in TARGETS.values())
    commits = state.commits if len(state.commits) < 4 else [state.commits[0], "...", state.commits[-1]]
    last = state.seed + max(progress.slices for progress in state.targets.values()) - 1
    head = (
        f"{state.executions:,} executions of {goal:,} that make a complete run, {state.started} to {state.ended}, "
        f"commits {' '.join(commits)}, seeds {state.seed} to {last}."
    )
    rows = ["| target | executions | of these guided by coverage | distinct findings |", "|---|---:|---:|---:|"]
    for name in TARGETS:
        progress = state.of(name)
        guided = f"{progress.guided:,}" if TARGETS[name].guided else "-"
        rows.append(f"| `{name}` | {progress.executions:,} | {guided} | {len(progress.findings)} |")
    guided_all = sum(progress.guided for progress in state.targets.values())
    rows.append(f"| all | {state.executions:,} | {guided_all:,} | {state.found} |")
    return "\n".join([head, "", *rows])
