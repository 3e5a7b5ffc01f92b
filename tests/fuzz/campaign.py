"""A run over all targets: which one is next, what was executed and found so far, and the state that outlives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz.loop import Slice, report, run_slice
from tests.fuzz.targets import ROOT, TARGETS, WORK, Result, Target

STATE = Path(__file__).with_name("state.json")  # of complete runs; part of the repository
_SLICE = 50  # a slice is this part of a target's goal, at most
_GUIDED_EVERY = 3  # of a reader's slices, one is guided by coverage: those take about three times as long


@dataclass
class Progress:
    """Executions of a target. ``findings``: how often each reason was reported."""

    executions: int = 0
    guided: int = 0  # of these
    slices: int = 0
    findings: dict[str, int] = field(default_factory=dict)


@dataclass
class State:
    """Slice ``n`` of every target has the seed ``seed + n``."""

    seed: int
    started: str = ""
    ended: str = ""
    seconds: float = 0.0
    commits: list[str] = field(default_factory=list)
    targets: dict[str, Progress] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> State:
        raw = json.loads(path.read_text())
        targets = {name: Progress(**entry) for name, entry in raw.pop("targets").items()}
        return cls(**raw, targets=targets)

    def save(self, path: Path) -> None:
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(self), indent=1) + "\n")
        unfinished.rename(path)

    def of(self, name: str) -> Progress:
        return self.targets.setdefault(name, Progress())

    def merge(self, other: State) -> None:
        """Add what another process or machine executed. Later slices have seeds that neither had."""
        for name, progress in other.targets.items():
            mine = self.of(name)
            mine.executions += progress.executions
            mine.guided += progress.guided
            mine.slices = max(mine.slices, other.seed + progress.slices - self.seed)
            for reason, times in progress.findings.items():
                mine.findings[reason] = mine.findings.get(reason, 0) + times
        self.started, self.ended = min(self.started, other.started), max(self.ended, other.ended)
        self.seconds += other.seconds
        self.commits += [commit for commit in other.commits if commit not in self.commits]

    @property
    def executions(self) -> int:
        return sum(progress.executions for progress in self.targets.values())

    @property
    def found(self) -> int:
        return sum(len(progress.findings) for progress in self.targets.values())


def next_target(state: State, names: Iterable[str]) -> Target | None:
    """The one that is furthest from its goal; None if all have reached theirs."""
    parts = {name: state.of(name).executions / TARGETS[name].goal for name in names}
    name = min(parts, key=lambda each: parts[each])
    return TARGETS[name] if parts[name] < 1 else None


def run_next(state: State, target: Target, seconds: float) -> Slice:
    """One slice of a target, added to the state."""
    progress = state.of(target.name)
    seed = state.seed + progress.slices
    runs = max(1, min(target.goal // _SLICE, target.goal - progress.executions))
    guided = target.guided and progress.slices % _GUIDED_EVERY == 0
    started = time.monotonic()
    done = run_guided(target, seed, runs, seconds) if guided else run_slice(target, seed, runs, seconds)
    progress.executions += done.executions
    progress.guided += done.executions if guided else 0
    progress.slices += 1
    for result in done.findings:
        reason = f"{result.category}: {result.reason}"
        progress.findings[reason] = progress.findings.get(reason, 0) + 1
    state.seconds += time.monotonic() - started
    state.ended = now()
    if (current := commit()) not in state.commits:
        state.commits.append(current)
    return done


def run_guided(target: Target, seed: int, runs: int, seconds: float) -> Slice:
    """Executions by libFuzzer, which ends at the first finding."""
    from_prefix = f"{target.name}-"
    WORK.mkdir(parents=True, exist_ok=True)
    before = set(WORK.glob(f"{from_prefix}*-*"))
    program = Path(__file__).with_name("fuzz_program.py")
    with tempfile.NamedTemporaryFile() as count:
        count.write(bytes(8))
        count.flush()
        environment = {**os.environ, "EDGEWRIGHT_FUZZ_COUNT": count.name, "PYTHONPATH": str(ROOT)}
        environment.pop("EDGEWRIGHT_FUZZ_MODE", None)
        flags = [f"-runs={runs}", f"-seed={seed % (1 << 31) + 1}", f"-max_total_time={max(1, int(seconds))}"]
        command = [sys.executable, str(program), target.name, *flags]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        executions = int.from_bytes(Path(count.name).read_bytes(), "little")
    findings = []
    for path in sorted(set(WORK.glob(f"{from_prefix}*-*")) - before):
        findings.append(Result(path.name[len(from_prefix) :].split("-")[0], _exception(ended.stderr)))
        report(target.name, findings[-1], path.read_bytes(), 0)
    if ended.returncode and not findings:
        raise RuntimeError(f"{target.name}: {' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    return Slice(executions, findings)


def _exception(output: str) -> str:
    """The line of libFuzzer's output that names the Python exception, or else its summary."""
    lines = output.splitlines()
    for index, line in enumerate(lines):
        if "Uncaught Python exception" in line:
            return " ".join(lines[index + 1].split())[:300]
    return next((line for line in lines if line.startswith("SUMMARY")), "unknown")


def commit() -> str:
    """The commit that is checked out, marked if the product was changed since."""
    if shutil.which("git") is None:
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "--", "edgewright"], capture_output=True, check=False)
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout else "")


def now() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
