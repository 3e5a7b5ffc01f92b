"""200 rows while a worker is killed every ten seconds, the client once, and the disk is full once: the same table as
that of an undisturbed run. And two workers are nearly twice as fast as one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgewright.explore.rows import DONE
from edgewright.explore.store import DATABASE, Store
from edgewright.explore.table import records, stable

pytest.importorskip("distributed", reason="distributed is not installed")
psutil = pytest.importorskip("psutil", reason="psutil is not installed")
pytestmark = pytest.mark.slow

KILL_EVERY, LIMIT = 10.0, 1200
NETS = """
import torch
def make(width):
    module = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))
    return module, (torch.zeros(1, 8),)
def data():
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, 8, generator=draw) for _ in range(12)]
for width in range(2, 60):
    globals()[f"net{width}"] = lambda width=width: make(width)
"""
# In the client: the disk is full from the moment that a file exists, until the process has noticed.
FULL_DISK = """
import errno, os, pathlib
flag = pathlib.Path(os.environ["FULL_DISK"])
def audit(event, args):
    if event == "open" and flag.exists() and "/files/" in str(args[0]) and args[2] & os.O_CREAT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
import sys
sys.addaudithook(audit)
"""


def write_sweep(folder: Path, models: int) -> Path:
    (folder / "chaosnets.py").write_text(NETS)
    lines = ['targets = ["xnnpack"]', 'quantize = ["float", "int8"]', 'calibrate = "chaosnets:data"', "[models]"]
    lines += [f'm{n} = "chaosnets:net{n + 2}"' for n in range(models)]
    lines += ["[options]", "check = [true, false]", "[limits]", "retries = 20"]
    path = folder / "sweep.toml"
    path.write_text("\n".join(lines))
    return path


def start(folder: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    # The machine code of rows is cached: every run starts with an empty cache.
    variables = {"PYTHONPATH": root, "EDGEWRIGHT_CACHE": str(folder / "cache"), **environment}
    command = [sys.executable, "-m", "edgewright", "sweep", *map(str, arguments), "--workers", "2"]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=LIMIT)
    return process.returncode, errors


def rows_in(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT COUNT(*) FROM outcomes").fetchone()[0])
    except sqlite3.Error:
        return 0


def wait_for(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT
    while rows_in(folder) < count and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    assert process.poll() is None, process.communicate()[1]


class Killer(threading.Thread):
    """Kills the oldest worker of a client every ten seconds, if a row was finished since the last time: on a busy
    machine, ten seconds may be too short for a worker to import torch, and no sweep would ever end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.client: int | None = None
        self.killed = 0
        self.done = threading.Event()
        self._folder = folder

    def run(self) -> None:
        rows = 0
        while not self.done.wait(KILL_EVERY):
            workers = self._workers()
            if workers and rows_in(self._folder) > rows:
                rows = rows_in(self._folder)
                min(workers, key=lambda worker: worker.create_time()).kill()
                self.killed += 1

    def _workers(self) -> list[Any]:
        try:
            children = psutil.Process(self.client).children() if self.client else []
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        except psutil.Error:
            return []


def disturb(tmp_path: Path, sweep: Path, rough: Path, rows: int) -> Killer:
    """Run a sweep while workers are killed, then the client, then while the disk is full, and once more."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(FULL_DISK)
    root = Path(__file__).parents[2]
    hooked = {"PYTHONPATH": f"{tmp_path / 'hook'}:{root}", "FULL_DISK": str(tmp_path / "full")}
    killer = Killer(rough)
    killer.start()
    try:
        client = start(tmp_path, sweep, "-o", rough)
        killer.client = client.pid
        wait_for(rough, rows * 3 // 10, client)
        client.send_signal(signal.SIGKILL)
        client.communicate()
        before = rows_in(rough)
        assert rows * 3 // 10 <= before < rows

        client = start(tmp_path, "--resume", rough, **hooked)
        killer.client = client.pid
        wait_for(rough, rows * 6 // 10, client)
        (tmp_path / "full").touch()
        code, errors = finish(client)
        assert code == 3 and "No space left" in errors, errors
        (tmp_path / "full").unlink()
        assert before < rows_in(rough) < rows

        client = start(tmp_path, "--resume", rough)
        killer.client = client.pid
        code, errors = finish(client)
        assert code == 0, errors
    finally:
        killer.done.set()
    return killer


def table(folder: Path) -> list[dict[str, Any]]:
    with Store(folder) as store:
        return [stable(line) for line in records(store)]


def attempts(folder: Path) -> Sequence[int]:
    with Store(folder) as store:
        return [line["attempts"] for line in records(store)]


@pytest.mark.parametrize("models", [10, 50])
def test_the_table_of_a_disturbed_sweep_is_that_of_a_calm_one(models: int, tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, models)
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    code, errors = finish(start(tmp_path, sweep, "-o", calm))
    assert code == 0, errors
    expected = table(calm)
    assert len(expected) == 4 * models and {line["status"] for line in expected} == {DONE}

    killer = disturb(tmp_path, sweep, rough, 4 * models)
    assert table(rough) == expected
    print(f"workers killed: {killer.killed}, rows with several attempts: {sum(a > 1 for a in attempts(rough))}")
    assert killer.killed >= models // 10 and max(attempts(rough)) > 1


def test_two_workers_are_busy_almost_all_of_the_time(tmp_path: Path) -> None:
    """Of the time from the first row's start to the last one's end. Wall times of a busy machine say nothing about the
    ratio of one worker's to that of two; the share of time that workers compute does not depend on what else runs."""
    sweep, folder = write_sweep(tmp_path, models=12), tmp_path / "results"
    process = start(tmp_path, sweep, "-o", folder)
    wait_for(folder, 4, process)  # workers have imported torch
    begin, first = time.monotonic(), set(seconds_by_row(folder))
    wait_for(folder, 44, process)
    elapsed = time.monotonic() - begin
    busy = sum(seconds for key, seconds in seconds_by_row(folder).items() if key not in first)
    code, errors = finish(process)
    assert code == 0, errors
    print(f"workers computed {busy / (2 * elapsed):.3f} of the time")
    assert busy / (2 * elapsed) >= 0.85


def seconds_by_row(folder: Path) -> dict[str, float]:
    with Store(folder) as store:
        return {key: outcome.seconds for key, outcome in store.outcomes().items()}
