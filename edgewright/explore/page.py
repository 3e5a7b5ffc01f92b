"""A sweep as one HTML page: its plots and table, and the full report of its best programs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.explore.goal import Findings, Point
from edgewright.explore.rows import DONE
from edgewright.explore.search_task import Task
from edgewright.explore.store import Store
from edgewright.explore.sweep_file import OPTIONS
from edgewright.explore.table import score_of
from edgewright.report.collect import Options, collect
from edgewright.report.model import Fact, FileReport, Report, Sweep, SweepRow
from edgewright.report.page import save
from edgewright.units import duration

_MAX_FILES = 8  # programs with a full report: a page stays small enough for a phone


def write_page(store: Store, lines: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> int:
    """Write the page; returns its bytes."""
    metric = any(line["metric"] is not None for line in lines)
    lower = metric and store.meta("better") == "lower"
    score = f"metric ({'lower' if lower else 'higher'} is better)" if metric else "SQNR, dB"
    files = [_file(store, line) for line in lines if line["best"]][:_MAX_FILES]
    sweep = Sweep([_row(line) for line in lines], score, metric, lower, _about(lines, metric, len(files)))
    return save(Report(f"Sweep: {store.folder.name or store.folder}", files, sweep=sweep), path)


def write_search_page(store: Store, task: Task, found: Findings, path: str | os.PathLike[str]) -> int:
    """Write the page of a precision search; returns its bytes."""
    goal = task.goal
    lines = [_search_line(task, found, point) for point in found.points]
    if goal.original is None:
        score, about = "SQNR, dB", f"The score is the SQNR against the original model, on {found.samples} inputs "
        about += f"({found.evaluated_on}); the limit is {goal.score_limit:g} dB."
    else:
        score = f"metric ({'lower' if goal.lower else 'higher'} is better)"
        about = f"The score is the metric, which is {goal.original:.6g} of the original; the limit is "
        about += f"{goal.score_limit:.6g}."
    lower = goal.lower and goal.original is not None
    best = [line for line in lines if line["best"]][:_MAX_FILES]
    files = [_file(store, line) for line in best]
    sweep = Sweep([_row(line) for line in lines], score, False, lower, about)
    return save(Report(f"Search: {task.row.model} on {task.row.target}", files, sweep=sweep), path)


def _search_line(task: Task, found: Findings, point: Point) -> dict[str, Any]:
    mark = " (the best within the limits)" if point.best and point.within_limits else ""
    return {
        "model": task.row.model, "target": task.row.target, "precision": f"{point.name}{mark}", "status": DONE,
        "file_bytes": point.bytes, "planned_bytes": point.planned_bytes, "milliseconds": point.milliseconds,
        "time_basis": found.basis, "metric": point.metric, "sqnr": point.sqnr, "delegated_macs": point.delegated_macs,
        "best": point.pareto, "error": "", "traceback": "", "reasons": [], "pte": point.pte, "twin": point.twin,
    }  # fmt: skip


def _about(lines: Sequence[Mapping[str, Any]], metric: bool, files: int) -> str:
    done = [line for line in lines if line["status"] == DONE]
    samples = sorted({line["samples"] for line in done if line["samples"]})
    origins = sorted({line["evaluated_on"] for line in done if line["evaluated_on"]})
    parts = []
    if metric:
        parts.append("The score is the sweep's own metric.")
    elif samples:
        count = " or ".join(map(str, samples))
        parts.append(f"The score is the SQNR against the original model, on {count} inputs ({', '.join(origins)}).")
    if files:
        parts.append(f"The other tabs show {files} of the best rows.")
    return " ".join(parts)


def _row(line: Mapping[str, Any]) -> SweepRow:
    options = ", ".join(f"{name}={str(line[name]).lower()}" for name in OPTIONS if name in line)
    repeated = [f"attempt {n}: {reason}" for n, reason in enumerate(line["reasons"], 1)]
    note = "\n".join(filter(None, (line["error"], line["traceback"], *repeated)))
    return SweepRow(
        line["model"], line["target"], line["precision"], options, line["status"], note, line["file_bytes"],
        line["planned_bytes"], line["milliseconds"], line["time_basis"], score_of(line), line["delegated_macs"],
        bool(line["best"]),
    )  # fmt: skip


def _file(store: Store, line: Mapping[str, Any]) -> FileReport:
    """The report of a row's program, as the file and the sweep describe it."""
    name = f"{line['model']}, {line['target']}, {line['precision']}"
    twin = store.path(line["twin"]) if line["twin"] else None
    file = collect(store.path(line["pte"]), name, Options(inputs=None), twin=twin)
    file.target, file.precision = line["target"], line["precision"]
    file.facts = [f for f in file.facts if f.label != "target"]
    file.facts += [Fact("target", file.target), Fact("precision", file.precision, "of the model's layers")]
    if line["sqnr"] is not None:
        file.facts.append(Fact("SQNR", f"{line['sqnr']:.1f} dB", "against the original, in the sweep"))
    if line["milliseconds"] is not None and not any(f.label == "time" for f in file.facts):
        file.facts.append(Fact("time", duration(line["milliseconds"] / 1e3), line["time_basis"]))
    file.measures.sqnr, file.measures.coverage = line["sqnr"], line["delegated_macs"]
    file.measures.milliseconds, file.measures.time_basis = line["milliseconds"], line["time_basis"]
    return file
