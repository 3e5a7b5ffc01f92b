"""Precision search on all targets, with any number of workers, and with a client that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import edgewright as ew
from edgewright.explore.precision_search import SearchResult
from edgewright.explore.store import DATABASE, Store
from tests.explore import search_nets

pytest.importorskip("distributed", reason="distributed is not installed")
pytestmark = pytest.mark.slow
LIMIT = 900
# The least SQNR that a mixture has to have: more than int8 has, less than the most precise.
TARGETS = {"xnnpack": 45, "ethos-u55-128": 40, "sm8550": 40, "e9955": 45, "imxrt700": 40}


def search(target: str, **options: Any) -> SearchResult:
    options = {"calibration": search_nets.data(), "quiet": True, "min_sqnr": TARGETS[target], **options}
    return ew.search(search_nets.small(), torch.zeros(1, 1, 8, 8), target, **options)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target(target: str) -> None:
    result = search(target, trials=11)
    assert result.best.within_limits and not result.findings.failures
    int8 = next(p for p in result.points if p.name == "int8")
    assert int8.sqnr < TARGETS[target] <= result.best.sqnr
    others = [p for p in result.points if p.within_limits]
    assert result.best.milliseconds == min(p.milliseconds for p in others)
    again = ew.compile(
        search_nets.small(), torch.zeros(1, 1, 8, 8), target, recipe=result.recipe, calibration=search_nets.data(),
        quiet=True,
    )  # fmt: skip
    assert again.buffer == result.program


def test_any_number_of_workers_finds_the_same() -> None:
    one, two = (search("ethos-u55-128", trials=8, workers=workers) for workers in (1, 2))
    assert one.to_dict() == two.to_dict() and one.program == two.program


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "edgewright", "search", *map(str, arguments), "--workers", "1", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def outcomes(folder: Path) -> int:
    if not (folder / DATABASE).is_file():
        return 0
    with Store(folder) as store:
        return len(store.outcomes())


def test_a_client_that_is_killed_keeps_the_best_so_far_and_goes_on(tmp_path: Path) -> None:
    module = "tests.explore.search_nets"
    new = [f"{module}:small", "--target", "ethos-u55-128", "--calibrate", f"{module}:data", "--min-sqnr", 40]
    new += ["--trials", 8]
    whole = start(tmp_path, *new, "-o", tmp_path / "whole")
    assert whole.wait(LIMIT) == 0
    cut = tmp_path / "cut"
    process = start(tmp_path, *new, "-o", cut)
    for count in (2, 4, 6):  # killed, with its workers, when so many programs are finished
        deadline = time.monotonic() + LIMIT
        while outcomes(cut) < count and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert outcomes(cut) >= count
        best = ew.compile(
            search_nets.small(), torch.zeros(1, 1, 8, 8), "ethos-u55-128", recipe=cut / "best.toml",
            calibration=search_nets.data(), quiet=True,
        )  # fmt: skip
        with Store(cut) as store:
            assert best.buffer in [store.get(o.files["pte"]) for o in store.outcomes().values()]
        process = start(tmp_path, "--resume", cut)
    assert process.wait(LIMIT) == 0, process.communicate()
    for name in ("best.toml", "best.pte"):
        assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
