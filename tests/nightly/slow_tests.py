"""The tests marked ``slow``, file by file, each file in processes of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.nightly.pytest_plugin import recorded

ROOT = Path(__file__).parents[2]
_NOTHING_SELECTED = 5  # pytest's exit code
_CRASH_LIMIT = 3  # processes of one file that may die before the rest of it is given up


@dataclass
class SlowTests:
    """A run that keeps its outcomes in ``folder``. Each file gets ``slice_seconds`` before the next has its turn."""

    folder: Path
    seed: int | None = None
    until: float = float("inf")  # of time.monotonic
    slice_seconds: float = float("inf")
    finished: set[str] = field(default_factory=set)

    def run(self, files: Sequence[str], jobs: int) -> bool:
        """Whether all outcomes so far are good. Stops at ``until``; files left are done by the next run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        order = list(files)
        if self.seed is not None:
            random.Random(self.seed).shuffle(order)
        while (left := [f for f in order if f not in self.finished]) and time.monotonic() < self.until:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(self._run_file, left))
        return not any(c["failed"] or c["crashed"] for c in self.counts(files).values())

    def _run_file(self, file: str) -> None:
        left = min(self.until - time.monotonic(), self.slice_seconds)
        if left <= 0:
            return
        record = self.record_of(file)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.nightly.pytest_plugin",
                   "-o", "addopts=", "-q", "--strict-markers", "-m", "slow", "--record", str(record), file]  # fmt: skip
        if left < float("inf"):
            command += ["--stop-after", f"{left:.0f}"]
        if self.seed is not None:
            command += ["--shuffle", str(self.seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with record.with_suffix(".log").open("a") as log:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, env=environment, check=False).returncode
        self._note_end(file, code)

    def _note_end(self, file: str, code: int) -> None:
        record = self.record_of(file)
        rows = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        start = max((at for at, row in enumerate(rows) if "collected" in row), default=None)
        if code not in (0, 1, 2, _NOTHING_SELECTED) or start is None:  # died, or its file cannot be collected
            with record.open("a") as out:
                out.write(json.dumps({"crash": code}) + "\n")
            if sum("crash" in row for row in rows) + 1 >= _CRASH_LIMIT or start is None:
                self.finished.add(file)
        elif len({row["test"] for row in rows[start:] if "test" in row}) >= rows[start]["collected"]:
            self.finished.add(file)
        print(f"{file}: {self._words(file)}", flush=True)

    def _words(self, file: str) -> str:
        return ", ".join(f"{count} {name}" for name, count in self.counts([file])[file].items() if count)

    def record_of(self, file: str) -> Path:
        return self.folder / (file.removeprefix("tests/").removesuffix(".py").replace("/", ".") + ".jsonl")

    def counts(self, files: Sequence[str]) -> dict[str, Counter[str]]:
        found = {}
        for file in files:
            path = self.record_of(file)
            count = Counter({"passed": 0, "failed": 0, "skipped": 0, "crashed": 0})
            count.update(recorded(path).values())
            text = path.read_text() if path.exists() else ""
            count["crashed"] = sum('{"crash":' in line for line in text.splitlines())
            found[file] = count
        return found

    def complete(self, files: Mapping[str, int]) -> dict[str, dict[str, str]]:
        """Outcomes by test of the files all of whose tests have one."""
        found = {file: recorded(self.record_of(file)) for file in files}
        return {file: outcomes for file, outcomes in found.items() if len(outcomes) >= files[file]}

    def failures(self, files: Sequence[str]) -> Iterator[str]:
        for file in files:
            yield from (test for test, outcome in recorded(self.record_of(file)).items() if outcome == "failed")


def slow_files() -> dict[str, int]:
    """Files that have slow tests, and how many."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "-qq", "-m", "slow",
               "--collect-only", "tests"]  # fmt: skip
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pairs = (line.rsplit(": ", 1) for line in listed.splitlines() if line.startswith("tests/") and ": " in line)
    return {file: int(count) for file, count in pairs}
