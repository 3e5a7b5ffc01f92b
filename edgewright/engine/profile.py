"""Per-step profiles of compiled graphs, as a table, an ETDump or a Chrome trace."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.engine.plan import Step
from edgewright.files import write_file
from edgewright.formats import etdump
from edgewright.ir.graph import Array
from edgewright.units import duration, share


@dataclass(frozen=True)
class StepTime:
    """A step of one run, in nanoseconds of ``time.perf_counter_ns``."""

    step: Step
    start: int
    end: int


@dataclass
class EngineRun:
    """One inference, from the first step's start to the last one's end."""

    start: int
    end: int = 0
    steps: list[StepTime] = field(default_factory=list)


@dataclass(frozen=True)
class ProfileRow:
    """A step over all runs. ``native`` is False for operators without a kernel, which run in Python."""

    label: str
    kernel: str
    native: bool
    calls: int
    mean_us: float
    least_us: float
    share: float
    gmacs: float  # 10^9 multiply-accumulates per second, in the fastest run
    gbytes: float


class EngineProfile:
    """Collects times of ``graph.run(inputs, profile=profile)``; may be passed to several calls of one graph."""

    def __init__(self) -> None:
        self.runs: list[EngineRun] = []
        self._ticks: list[tuple[Sequence[Step], Array]] = []
        self._anchor = (0, 0)

    def begin(self) -> None:
        self._ticks.clear()
        self._anchor = _now()
        self.runs.append(EngineRun(self._anchor[1]))

    def add(self, steps: Sequence[Step], stamps: Array) -> None:
        """Add the driver's time stamps of the start and end of each step, in clock ticks."""
        self._ticks.append((steps, stamps))

    def end(self) -> None:
        """Convert ticks to nanoseconds by reading both clocks before and after the run."""
        ticks, stop = _now()
        first, begin = self._anchor
        rate = (stop - begin) / max(ticks - first, 1)
        run = self.runs[-1]
        run.end = stop
        for steps, stamps in self._ticks:
            times = begin + ((stamps - first) * rate).astype(np.int64)
            run.steps += [StepTime(s, int(start), int(end)) for s, (start, end) in zip(steps, times, strict=True)]

    def rows(self) -> list[ProfileRow]:
        """Time per step over all runs, in the order they are executed."""
        times: dict[int, list[float]] = {}
        steps: dict[int, Step] = {}
        for run in self.runs:
            for at, entry in enumerate(run.steps):
                steps[at] = entry.step
                times.setdefault(at, []).append((entry.end - entry.start) / 1e3)
        total = sum(map(sum, times.values())) or 1.0
        return [_row(steps[at], spent, total) for at, spent in times.items()]

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(r.label) for r in rows), default=4)
        lines = [f"{'#':>4}  {'step':<{width}}  {'mean':>9}  {'least':>9}  {'share':>6}  {'GMAC/s':>7}  {'GB/s':>6}"]
        for at, r in enumerate(rows):
            note = "" if r.native else "  in Python"
            times = f"{duration(r.mean_us / 1e6):>9}  {duration(r.least_us / 1e6):>9}  {share(r.share):>6}"
            lines.append(f"{at:>4}  {r.label:<{width}}  {times}  {r.gmacs:>7.1f}  {r.gbytes:>6.1f}{note}")
        spent = [(run.end - run.start) / 1e9 for run in self.runs]
        mean = sum(spent) / len(spent) if spent else 0.0
        least = min(spent, default=0.0)
        return "\n".join([*lines, f"{len(spent)} runs, {duration(mean)} each, {duration(least)} at least"])

    def events(self, instruction: int = 0, chain: int = 0) -> list[list[etdump.Event]]:
        """Per run, the steps as events of a delegate called by that instruction."""
        return [[_event(entry, at, chain, instruction) for at, entry in enumerate(run.steps)] for run in self.runs]

    def etdump(self) -> etdump.ETDump:
        """The profile as an ETDump for ExecuTorch's tools: steps are a delegate's events."""
        return etdump.ETDump(run_data=[etdump.RunData(name="Execute", events=events) for events in self.events()])

    def chrome_trace(self) -> dict[str, Any]:
        """The profile for ``chrome://tracing`` or Perfetto."""
        events = []
        for run in self.runs:
            events.append(_slice("inference", run.start, run.end, {}))
            for entry in run.steps:
                args = {"kernel": entry.step.kernel, "macs": entry.step.macs, "bytes": entry.step.bytes}
                events.append(_slice(entry.step.label or entry.step.kernel, entry.start, entry.end, args))
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save_etdump(self, path: str | os.PathLike[str]) -> int:
        return etdump.write_etdump(self.etdump(), path)

    def save_chrome_trace(self, path: str | os.PathLike[str]) -> int:
        return write_file(path, [json.dumps(self.chrome_trace()).encode()])


def _now() -> tuple[int, int]:
    from edgewright.engine.jit.threads import driver

    return int(driver().now()), time.perf_counter_ns()


def _row(step: Step, spent: list[float], total: float) -> ProfileRow:
    least = max(min(spent), 1e-3)
    return ProfileRow(
        label=step.label or step.kernel,
        kernel=step.kernel,
        native=step.python is None,
        calls=len(spent),
        mean_us=sum(spent) / len(spent),
        least_us=min(spent),
        share=sum(spent) / total,
        gmacs=step.macs / least / 1e3,
        gbytes=step.bytes / least / 1e3,
    )


def _slice(name: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "pid": 1, "tid": 1, "args": args}


def _event(entry: StepTime, at: int, chain: int, instruction: int) -> etdump.Event:
    label = entry.step.label or entry.step.kernel
    return etdump.Event(
        profile_event=etdump.ProfileEvent(
            name=label,
            chain_index=chain,
            instruction_id=instruction,
            delegate_debug_id_int=-1,
            delegate_debug_id_str=f"{at}: {label}",
            start_time=entry.start,
            end_time=entry.end,
        )
    )
