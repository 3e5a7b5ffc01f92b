"""``docs/versioning.md``: the matrix of Python and torch."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tests.compose.campaign import ROOT
from tests.versions.cells import ABSENT, FAILED, PASSED, PYTHON, TORCH, Outcome

PAGE = ROOT / "docs" / "versioning.md"
BEGIN, END = "<!-- versions: begin -->", "<!-- versions: end -->"


def write_page(outcomes: Mapping[tuple[str, str], Outcome]) -> None:
    """Replace what is between the page's markers."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    commits = dict.fromkeys(o.commit for o in outcomes.values())
    head_line = f"{time.strftime('%Y-%m-%d')}, commit {', '.join(commits)}, on x86-64 Linux:"
    lines = ["", head_line, "", *table(outcomes), "", *details(outcomes), ""]
    PAGE.write_text("\n".join([f"{head}{BEGIN}", *lines, f"{END}{rest.split(END)[1]}"]), encoding="utf-8")


def table(outcomes: Mapping[tuple[str, str], Outcome]) -> list[str]:
    lines = [f"| | {' | '.join(f'torch {torch}' for torch in TORCH)} |", f"|---|{'---|' * len(TORCH)}"]
    for python in PYTHON:
        cells = [_cell(outcomes.get((python, torch))) for torch in TORCH]
        lines.append(f"| Python {python} | {' | '.join(cells)} |")
    return lines


def details(outcomes: Mapping[tuple[str, str], Outcome]) -> list[str]:
    """A line for each cell that ran: its packages, and what failed."""
    ran = [o for _, o in sorted(outcomes.items()) if o.packages or o.outcome == FAILED]
    return [f"- {o.packages or f'Python {o.python}, torch {o.torch}'}{_failure(o)}" for o in ran]


def _failure(outcome: Outcome) -> str:
    if outcome.outcome != FAILED:
        return ""
    lines = outcome.detail.strip().splitlines()
    return f": `{(outcome.detail if outcome.tests else lines[-1])[:400]}`"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "untested"
    if outcome.outcome == ABSENT:
        return ABSENT
    if outcome.outcome == PASSED:
        return f"{outcome.tests} passed" + (f", {outcome.skipped} skipped" if outcome.skipped else "")
    failed = len(outcome.detail.split("; ")) if outcome.tests else 0
    return f"{failed} of {outcome.tests} failed" if failed else "failed to install or to run the demo"
