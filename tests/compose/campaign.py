"""Long searches: units of work in processes of their own, which may crash, and a state that outlives all of them."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from edgewright.engine.isa import ARM_LEVELS

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path.home() / ".cache" / "edgewright-tests" / "aarch64"
_SILENCE = 300  # seconds after which a worker is taken to hang
Report = Callable[[str], None]


@dataclass
class Unit:
    """Compositions of one kind: ``name`` is ``core:avx512`` or ``model:xnnpack:int8``."""

    name: str
    total: int
    next: int = 0  # seeds from the state's base on
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0

    @property
    def done(self) -> bool:
        return self.next >= self.total


@dataclass
class State:
    base: int
    units: list[Unit]
    failures: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, int] = field(default_factory=dict)
    skips: dict[str, int] = field(default_factory=dict)
    commit: str = ""
    started: str = ""
    ended: str = ""

    def save(self, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path) -> State:
        held = json.loads(path.read_text())
        return cls(**{**held, "units": [Unit(**u) for u in held["units"]]})


@cache
def commit() -> str:
    """The commit that this process started from."""
    made = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return made.stdout.strip()


def run_unit(state: State, unit: Unit, count: int, until: float, report: Report) -> None:
    """``count`` more compositions of a unit, or as many as there is time for."""
    end = min(unit.total, unit.next + count)
    start = time.monotonic()
    coverage: Counter[str] = Counter(state.coverage)
    while unit.next < end and time.monotonic() < until:
        for line in _worker(unit.name, state.base + unit.next, end - unit.next, until):
            _take(state, unit, coverage, line, report)
    unit.seconds += time.monotonic() - start
    state.coverage = dict(coverage)


def _take(state: State, unit: Unit, coverage: Counter[str], line: dict[str, Any], report: Report) -> None:
    if "coverage" in line:
        coverage.update(line["coverage"])
        return
    unit.next = line["seed"] - state.base + 1
    if "failure" in line:
        unit.failed += 1
        state.failures.append({"unit": unit.name, **line})
        report(f"{unit.name} seed {line['seed']}: {line['failure']}: {line['detail']}")
    elif line.get("skipped"):
        unit.skipped += 1
        state.skips[line["skipped"]] = state.skips.get(line["skipped"], 0) + 1
    else:
        unit.passed += 1


def _worker(unit: str, seed: int, count: int, until: float) -> Iterator[dict[str, Any]]:
    """What a worker says of each composition. One that dies or hangs has failed with the seed after the last."""
    command = [*python_of(unit), "-m", "tests.compose", "worker", unit, str(seed), str(count)]
    current = seed
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            for line in _lines(process, until):
                if line is None:
                    yield {"seed": current, "failure": "hangs", "detail": f"nothing for {_SILENCE} s", "spec": ""}
                    return
                if "seed" in line:
                    current = line["seed"] + 1
                yield line
        finally:
            process.kill()
        code = process.wait()
    if time.monotonic() < until and current < seed + count:
        yield {"seed": current, "failure": "crash", "detail": f"exit code {code}", "spec": ""}


def python_of(unit: str) -> list[str]:
    """The Python that a unit runs in: this one, or an Arm one under qemu (``tests/support/aarch64.sh`` installs it)."""
    if unit.rpartition(":")[2] not in ARM_LEVELS:
        return [sys.executable]
    given = {"PYTHONPATH": f"{ROOT}:{FOLDER / 'site'}", "EDGEWRIGHT_CACHE": "off", "OPENBLAS_NUM_THREADS": "1",
             "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    settings = [word for name, value in given.items() for word in ("-E", f"{name}={value}")]
    root = FOLDER / "root"
    return [str(FOLDER / "qemu"), "-cpu", "max", "-L", str(root), *settings, str(root / "usr/bin/python3")]


def _lines(process: subprocess.Popen[bytes], until: float) -> Iterator[dict[str, Any] | None]:
    assert process.stdout is not None and process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while True:
            left = min(_SILENCE, until - time.monotonic())
            if left <= 0:
                return
            if not ready.select(left):
                if time.monotonic() >= until:
                    return
                yield None
                return
            process.stderr.read()
            line = process.stdout.readline()
            if not line:
                return
            if line.startswith(b"{"):
                yield json.loads(line)
