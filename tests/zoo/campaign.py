"""Runs models one process each, with a time and a memory limit, and appends what came of them to a state file."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_POLL = 0.5  # seconds between looks at a worker's memory


@dataclass(frozen=True)
class Limits:
    seconds: float = 600.0  # of one model, all targets
    gigabytes: float = 8.0


def worker_command(name: str, targets: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tests.zoo.worker", name, *targets]


@dataclass
class State:
    """Rows by model and target; the last one written counts."""

    path: Path
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock, compare=False)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        *complete, half = self.path.read_text().split("\n")
        if half:  # a killed run leaves it; what is appended must not continue it
            self.path.write_text("".join(f"{line}\n" for line in complete))
        for row in map(json.loads, complete):
            self.rows[row["model"], row["target"]] = row

    def add(self, row: Row) -> None:
        self.rows[row["model"], row["target"]] = row
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def missing(self, name: str, targets: Iterable[str]) -> list[str]:
        return [t for t in targets if (name, t) not in self.rows]


@dataclass
class Campaign:
    """What holds for all models of a run. No model starts after ``until`` (of ``time.monotonic``)."""

    targets: Sequence[str]
    state: State
    limits: Limits = field(default_factory=Limits)
    until: float = float("inf")
    facts: Row = field(default_factory=dict)  # that all rows have
    command: Callable[[str, Sequence[str]], list[str]] = worker_command
    report: Callable[[Row], None] = lambda row: None

    def run(self, names: Sequence[str], jobs: int = 1) -> None:
        """Run what the state does not have yet."""
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self.run_one, names))

    def run_one(self, name: str) -> None:
        """A worker that dies is followed by one for the targets behind."""
        end = time.monotonic() + self.limits.seconds
        while (rest := self.state.missing(name, self.targets)) and time.monotonic() < min(self.until, end):
            for row in run_model(self.command(name, rest), rest, self.limits.gigabytes, end):
                complete = {"model": name, **row, **self.facts}
                self.state.add(complete)
                self.report(complete)


def run_model(command: list[str], targets: Sequence[str], gigabytes: float, end: float) -> Iterator[Row]:
    """Rows of one process. If it is killed or dies, a row tells of the target it was at; at the time limit, of all that
    were left."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    worker, current, done = _Worker(process), targets[0], set()
    for line in worker.lines(gigabytes, end):
        content = json.loads(line)
        if "start" in content:
            current = content["start"]
        else:
            done.add(content["target"])
            yield content
    left = [t for t in targets if t not in done]
    if worker.killed == "time":
        yield from ({"target": t, "status": "limit", "message": "time"} for t in left)
    elif worker.killed:
        yield {"target": current, "status": "limit", "message": worker.killed}
    elif left:
        yield {"target": current, **_death(process.returncode, worker.errors)}


def _death(code: int, errors: str) -> Row:
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    lines = errors.strip().splitlines()
    return {"status": "crash", "message": f"{how}: {lines[-1][:200]}" if lines else how, "trace": errors[-2000:]}


class _Worker:
    """Reads a process' lines while watching its memory and the time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.killed = ""
        self.errors = ""

    def lines(self, gigabytes: float, end: float) -> Iterator[str]:
        assert self.process.stdout is not None and self.process.stderr is not None
        out, err = self.process.stdout.fileno(), self.process.stderr.fileno()
        held, streams = b"", [out, err]
        try:
            while streams:
                ready, _, _ = select.select(streams, [], [], _POLL)
                for stream in ready:
                    data = os.read(stream, 1 << 16)
                    if not data:
                        streams.remove(stream)
                    elif stream == err:
                        self.errors = (self.errors + data.decode(errors="replace"))[-8000:]
                    else:
                        *complete, held = (held + data).split(b"\n")
                        yield from (line.decode() for line in complete)
                self._watch(gigabytes, end)
        finally:
            if self.process.poll() is None and streams:
                self._kill("stopped")
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()

    def _watch(self, gigabytes: float, end: float) -> None:
        if self.killed:
            return
        if time.monotonic() > end:
            self._kill("time")
        elif resident_bytes(self.process.pid) > gigabytes * 2**30:
            self._kill("memory")

    def _kill(self, why: str) -> None:
        self.killed = why
        os.killpg(self.process.pid, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
    """The memory that a process holds; 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def share(names: Sequence[str], part: str, seed: int) -> list[str]:
    """Every n-th name, in the order given; another n-th for another seed: ``share(names, "1/4", seed)``."""
    index, _, count = part.partition("/")
    total = int(count)
    if not 1 <= int(index) <= total:
        raise SystemExit(f"--share: must be i/n with i of 1..n; got {part}")
    return [n for at, n in enumerate(names) if (at + seed) % total == int(index) - 1]
