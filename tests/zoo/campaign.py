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
_PATIENCE = 10  # times the limit of processor time, in seconds that pass: a process that waits for ever


@dataclass(frozen=True)
class Limits:
    """Of one model, all targets. Seconds are those of the processor, so that other processes do not matter; ten times
    as many may pass."""

    seconds: float = 600.0
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

    def forget(self, statuses: Iterable[str]) -> None:
        """Rows of some statuses count as missing."""
        dropped = set(statuses)
        self.rows = {key: row for key, row in self.rows.items() if row["status"] not in dropped}

    def missing(self, name: str, targets: Iterable[str]) -> list[str]:
        return [t for t in targets if (name, t) not in self.rows]


@dataclass
class Campaign:
    """What holds for all models of a run. No model starts after ``until`` (of ``time.monotonic``)."""

    targets: Sequence[str]
    state: State
    limits: Limits = field(default_factory=Limits)
    until: float = float("inf")
    facts: Callable[[], Row] = dict  # that all rows of a model have
    command: Callable[[str, Sequence[str]], list[str]] = worker_command
    report: Callable[[Row], None] = lambda row: None

    def run(self, names: Sequence[str], jobs: int = 1) -> None:
        """Run what the state does not have yet."""
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self.run_one, names))

    def run_one(self, name: str) -> None:
        """A worker that dies is followed by one for the targets behind."""
        facts, budget = self.facts(), TimeBudget(self.limits.seconds)
        while (rest := self.state.missing(name, self.targets)) and not budget.spent and time.monotonic() < self.until:
            for row in run_model(self.command(name, rest), rest, self.limits.gigabytes, budget):
                complete = {"model": name, **row, **facts}
                self.state.add(complete)
                self.report(complete)


class TimeBudget:
    """Seconds of the processor that are left for the processes of a model, one after the other."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._end = time.monotonic() + _PATIENCE * seconds
        self._running = 0.0

    @property
    def spent(self) -> bool:
        return self._running > self._left or time.monotonic() > self._end

    def use(self, seconds: float) -> None:
        """Note what the current process has used so far."""
        self._running = seconds

    def close(self) -> None:
        """The current process has ended."""
        self._left, self._running = self._left - self._running, 0.0


def run_model(command: list[str], targets: Sequence[str], gigabytes: float, budget: TimeBudget) -> Iterator[Row]:
    """Rows of one process. If it is killed or dies, a row tells of the target it was at; at the time limit, of all that
    were left."""
    alone = {"OMP_NUM_THREADS": "1", "EDGEWRIGHT_THREADS": "1", **os.environ}  # waiting threads use the processor, too
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=alone
    )
    worker, current, done = _Worker(process), targets[0], set()
    for line in worker.lines(gigabytes, budget):
        content = json.loads(line)
        if "start" in content:
            current = content["start"]
        else:
            done.add(content["target"])
            yield content
    budget.close()
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

    def lines(self, gigabytes: float, budget: TimeBudget) -> Iterator[str]:
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
                self._watch(gigabytes, budget)
        finally:
            if self.process.poll() is None and streams:
                self._kill("stopped")
            self.process.wait()
            self.process.stdout.close()
            self.process.stderr.close()

    def _watch(self, gigabytes: float, budget: TimeBudget) -> None:
        if self.killed:
            return
        budget.use(processor_seconds(self.process.pid))
        if budget.spent:
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


def processor_seconds(pid: int) -> float:
    """What a process and its children that ended have used of the processor; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def share(names: Sequence[str], part: str, seed: int) -> list[str]:
    """Every n-th name, in the order given; another n-th for another seed: ``share(names, "1/4", seed)``."""
    index, _, count = part.partition("/")
    total = int(count)
    if not 1 <= int(index) <= total:
        raise SystemExit(f"--share: must be i/n with i of 1..n; got {part}")
    return [n for at, n in enumerate(names) if (at + seed) % total == int(index) - 1]
