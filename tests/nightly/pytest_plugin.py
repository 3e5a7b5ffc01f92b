"""A pytest plugin that runs a part of the selected tests, and records each outcome as soon as it is known.

``-p tests.nightly.pytest_plugin --record FILE``: tests whose outcome FILE already has are deselected, so that a run
that was killed continues where it stopped. ``--shuffle SEED`` changes the order; ``--stop-after SECONDS`` ends the run.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nightly")
    group.addoption("--record", type=Path, required=True, help="outcomes, one line of JSON each")
    group.addoption("--shuffle", type=int, default=None, help="seed of another order")
    group.addoption("--stop-after", type=float, default=float("inf"), help="seconds after which no test starts")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Recorder(config))


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self.path: Path = config.getoption("--record").resolve()  # tests change the working directory
        self.seed: int | None = config.getoption("--shuffle")
        self.end = time.monotonic() + config.getoption("--stop-after")
        self.session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = recorded(self.path)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]
        if self.seed is not None:
            random.Random(self.seed).shuffle(items)
        self._append({"collected": len(items)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test is known by its call, or by the set-up that failed or skipped it; a failing teardown comes on top.
        if report.when == "call" or report.outcome != "passed":
            self._append({"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2)})
        if report.when == "teardown" and time.monotonic() > self.end:
            assert self.session is not None
            self.session.shouldstop = "the time is over"

    def _append(self, line: dict[str, object]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def recorded(path: Path) -> dict[str, str]:
    """Outcomes by test. A failure stays one, whatever else is recorded of the test."""
    outcomes: dict[str, str] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "test" in row and outcomes.get(row["test"]) != "failed":
                outcomes[row["test"]] = row["outcome"]
    return outcomes
