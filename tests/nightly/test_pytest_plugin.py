"""Outcomes are recorded, a second run continues, and the time limit ends a run between two tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.nightly.pytest_plugin import recorded
from tests.nightly.slow_tests import ROOT

TESTS = """
import pytest

def test_good(tmp_path, monkeypatch): monkeypatch.chdir(tmp_path)
def test_bad(): assert False
def test_skipped(): pytest.skip("no reason")
@pytest.fixture
def broken():
    yield
    raise RuntimeError
def test_broken_teardown(broken): pass
"""


def run(folder: Path, *flags: str) -> str:
    (folder / "test_sample.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p",
               "tests.nightly.pytest_plugin", "--record", "record.jsonl", *flags, "test_sample.py"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False).stdout


def test_outcomes_are_recorded_and_a_second_run_has_nothing_left(tmp_path: Path) -> None:
    run(tmp_path)
    outcomes = {test.rpartition("::")[2]: outcome for test, outcome in recorded(tmp_path / "record.jsonl").items()}
    assert outcomes == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_broken_teardown": "failed",
    }
    assert "4 deselected" in run(tmp_path)


def test_the_time_limit_ends_a_run_and_the_next_one_continues(tmp_path: Path) -> None:
    counts = []
    for _ in range(4):
        run(tmp_path, "--stop-after", "0", "--shuffle", "5")
        counts.append(len(recorded(tmp_path / "record.jsonl")))
    assert counts == [1, 2, 3, 4]
