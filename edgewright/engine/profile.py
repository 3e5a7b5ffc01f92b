"""Profile: time per instruction, as a table, an ETDump or a Chrome trace.

Methods and compiled graphs fill the same type. A run has a step per instruction, and the steps of a compiled graph are
the ``parts`` of the instruction that runs it; a graph that is run without a method counts as one instruction.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from edgewright.files import write_file
from edgewright.units import duration, share

if TYPE_CHECKING:
    from edgewright.formats import etdump


@dataclass(frozen=True)
class StepTime:
    """One executed instruction, or a step of a compiled graph, in nanoseconds of ``time.perf_counter_ns``.

    ``macs``, ``bytes``: multiply-accumulates and bytes of operands and results, of steps of compiled graphs.
    ``layer``: the modules of the user's model that it computes, if the file names them.
    """

    chain: int
    instruction: int
    name: str
    start: int
    end: int
    parts: tuple[StepTime, ...] = ()
    macs: int = 0
    bytes: int = 0
    layer: str = ""


@dataclass
class RunTime:
    """One execution of a method or a graph."""

    method: str
    start: int
    end: int = 0
    steps: list[StepTime] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One instruction over all runs, in milliseconds; ``share`` is of the time of all instructions, by medians."""

    chain: int
    instruction: int
    name: str
    calls: int
    total_ms: float
    median_ms: float
    share: float
    layer: str = ""


@dataclass(frozen=True)
class PartRow:
    """One step inside a delegate over all runs, in milliseconds; ``share`` is of the time of all instructions."""

    chain: int
    instruction: int
    part: int
    name: str
    calls: int
    median_ms: float
    share: float
    layer: str = ""


class Profile:
    """Collects times of ``method.execute(inputs, profile=profile)``; may be passed to several calls."""

    def __init__(self) -> None:
        self.runs: list[RunTime] = []

    def begin(self, method: str) -> None:
        self.runs.append(RunTime(method, time.perf_counter_ns()))

    def end(self) -> None:
        self.runs[-1].end = time.perf_counter_ns()

    @contextmanager
    def step(self, chain: int, instruction: int, name: str, layer: str = "") -> Iterator[list[StepTime]]:
        """Time an instruction; the caller may append the times of its parts to the list."""
        parts: list[StepTime] = []
        start = time.perf_counter_ns()
        yield parts
        end = time.perf_counter_ns()
        timed = StepTime(chain, instruction, name, start, end, tuple(parts), layer=layer)
        self.runs[-1].steps.append(timed)

    def add_graph_run(self, start: int, end: int, steps: Iterable[StepTime]) -> None:
        """Add a finished run of a compiled graph, and its steps."""
        self.runs.append(RunTime("inference", start, end, [StepTime(0, 0, "inference", start, end, tuple(steps))]))

    @property
    def parts(self) -> list[StepTime]:
        """The steps of compiled graphs, of all runs."""
        return [part for run in self.runs for step in run.steps for part in step.parts]

    def rows(self) -> list[Row]:
        """Time per instruction over all finished runs, in program order. Medians: the first run may compile, and others
        may be interrupted."""
        times = self._times()
        total = sum(_typical(t) for t in times.values()) or 1
        return [
            Row(chain, at, name, len(t), sum(t) / 1e6, median(t) / 1e6, _typical(t) / total, layer)
            for (_, chain, at, name, layer), t in sorted(times.items())
        ]

    def part_rows(self) -> list[PartRow]:
        """Time per step inside delegates, over all runs, in execution order."""
        times: dict[tuple[str, int, int, int, str, str], list[int]] = {}
        for run in self.runs:
            for step in run.steps:
                for at, part in enumerate(step.parts):
                    key = (run.method, step.chain, step.instruction, at, part.name, part.layer)
                    times.setdefault(key, []).append(part.end - part.start)
        total = sum(_typical(t) for t in self._times().values()) or 1
        return [
            PartRow(chain, instruction, at, name, len(t), median(t) / 1e6, _typical(t) / total, layer)
            for (_, chain, instruction, at, name, layer), t in sorted(times.items())
        ]

    def _times(self) -> dict[tuple[str, int, int, str, str], list[int]]:
        """The times of every instruction, in nanoseconds."""
        times: dict[tuple[str, int, int, str, str], list[int]] = {}
        for run in self.runs:
            for step in run.steps:
                key = (run.method, step.chain, step.instruction, step.name, step.layer)
                times.setdefault(key, []).append(step.end - step.start)
        return times

    def __str__(self) -> str:
        rows, parts = self.rows(), self.part_rows()
        width = max((*(len(r.name) for r in rows), *(len(p.name) for p in parts)), default=4)
        layer = "layer" if any(r.layer for r in rows) or any(p.layer for p in parts) else ""
        lines = [f"{'#':>8}  {'instruction':<{width}}  {'calls':>6}  {'median':>9}  {'share':>6}  {layer}".rstrip()]
        for r in rows:
            lines.append(_format_row(str(r.instruction), r, width))
            inside = [p for p in parts if (p.chain, p.instruction) == (r.chain, r.instruction)]
            lines += [_format_row(f"{p.instruction}.{p.part}", p, width) for p in inside]
        seconds = [(run.end - run.start) / 1e9 for run in self.runs if run.end]
        typical = median(seconds) if seconds else 0.0
        return "\n".join([*lines, f"{len(seconds)} runs, {duration(typical)} each (median)"])

    def etdump(self) -> etdump.ETDump:
        """The profile in the format of ExecuTorch's tools."""
        from edgewright.formats import etdump  # not needed to run

        return etdump.ETDump(run_data=[_run_data(run) for run in self.runs])

    def chrome_trace(self) -> dict[str, Any]:
        """The profile for ``chrome://tracing`` or Perfetto."""
        events = []
        for run in self.runs:
            events.append(_trace_event(run.method, run.start, run.end, {}))
            for s in run.steps:
                events.append(_trace_event(s.name, s.start, s.end, {"instruction": s.instruction, **_layer(s)}))
                events += [
                    _trace_event(p.name, p.start, p.end, {"step": f"{s.instruction}.{i}", **_layer(p)})
                    for i, p in enumerate(s.parts)
                ]
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save_etdump(self, path: str | os.PathLike[str]) -> int:
        from edgewright.formats import etdump

        return write_file(path, [etdump.write_etdump(self.etdump())])

    def save_chrome_trace(self, path: str | os.PathLike[str]) -> int:
        return write_file(path, [json.dumps(self.chrome_trace()).encode()])


def _typical(times: list[int]) -> float:
    """The time of all calls, if each took as long as the median."""
    return median(times) * len(times)


def _format_row(number: str, row: Row | PartRow, width: int) -> str:
    figures = f"{row.calls:>6}  {duration(row.median_ms / 1e3):>9}  {share(row.share):>6}"
    return f"{number:>8}  {row.name:<{width}}  {figures}  {row.layer}".rstrip()


def _layer(step: StepTime) -> dict[str, str]:
    return {"layer": step.layer} if step.layer else {}


def _trace_event(name: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "pid": 1, "tid": 1, "args": args}


_CALLS = {"move": "MOVE_CALL", "jump_false": "JF_CALL", "free": "FREE_CALL"}


def _run_data(run: RunTime) -> etdump.RunData:
    from edgewright.formats import etdump

    events = []
    for step in run.steps:
        outer = _CALLS.get(step.name, "OPERATOR_CALL" if "::" in step.name else "DELEGATE_CALL")
        names = [f"native_call_{step.name.partition('::')[2]}", outer] if "::" in step.name else [outer]
        events += [_event(name, step.chain, step.instruction, step.start, step.end) for name in names]
        events += [_part_event(part, at, step) for at, part in enumerate(step.parts)]
    events.append(_event("Method::execute", -1, 0, run.start, run.end))
    return etdump.RunData(name="Execute", events=events)


def _event(name: str, chain: int, instruction: int, start: int, end: int) -> etdump.Event:
    from edgewright.formats import etdump

    return etdump.Event(
        profile_event=etdump.ProfileEvent(
            name=name, chain_index=chain, instruction_id=instruction, start_time=start, end_time=end
        )
    )


def _part_event(part: StepTime, at: int, step: StepTime) -> etdump.Event:
    """A step inside a delegate, in the form ExecuTorch's delegates report."""
    from edgewright.formats import etdump

    return etdump.Event(
        profile_event=etdump.ProfileEvent(
            name=part.name,
            chain_index=step.chain,
            instruction_id=step.instruction,
            delegate_debug_id_str=f"{at}: {part.name}",
            start_time=part.start,
            end_time=part.end,
        )
    )
