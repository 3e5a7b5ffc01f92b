"""The section of a sweep: its Pareto plots, all rows as a table, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgewright.report.charts import pareto_chart
from edgewright.report.markup import Cell, escape, fold, paragraph, table
from edgewright.report.model import Sweep, SweepRow
from edgewright.report.sections import FRONTIER
from edgewright.units import duration, share, size

_STATUS = {"done": "", "failed": "bad", "stopped": "warn", "missing": "about"}
_HEADS = (">delegated MACs", ">file", ">planned", ">time", "time by")
_MARK = "●"
_Point = tuple[str, float, float]


def sweep_section(sweep: Sweep) -> str:
    parts = [paragraph(_summary(sweep))]
    if sweep.about:
        parts.append(paragraph(sweep.about, "about"))
    plots = list(filter(None, _plots(sweep)))
    parts += [paragraph(FRONTIER, "about"), *plots] if plots else []
    best = [row for row in sweep.rows if row.best]
    if best:
        about = "No comparable row is smaller, faster and better at once."
        parts.append(f"<h3>The best</h3>{paragraph(about, 'about')}{_table('Pareto-optimal rows', sweep, best)}")
    parts.append(f"<h3>All rows</h3>{_table('All rows', sweep, sweep.rows)}")
    return "".join([*parts, *_errors(sweep)])


def _summary(sweep: Sweep) -> str:
    count = {status: sum(row.status == status for row in sweep.rows) for status in _STATUS}
    return f"{len(sweep.rows):,} rows: " + ", ".join(f"{n:,} {status}" for status, n in count.items() if n)


def _table(caption: str, sweep: Sweep, rows: list[SweepRow]) -> str:
    options = any(row.options for row in sweep.rows)
    named = ("model", "target", "precision", *(["options"] if options else []), "best")
    return table(caption, (*named, *_HEADS, f">{sweep.score}", "status"), [_cells(row, options) for row in rows])


def _cells(row: SweepRow, options: bool) -> tuple[Cell | str, ...]:
    def number(value: float | None, text: Callable[[float], str]) -> Cell:
        return Cell("") if value is None else Cell(text(value), float(value))

    return (
        row.model, row.target, row.precision, *([row.options] if options else []),
        Cell(_MARK if row.best else "", float(row.best)),
        number(row.coverage, share), number(row.file_bytes, size), number(row.planned, size),
        number(None if row.milliseconds is None else row.milliseconds / 1e3, duration), row.time_basis,
        number(row.score, lambda value: f"{value:.4g}"), Cell(row.status, style=_STATUS.get(row.status, "")),
    )  # fmt: skip


def _errors(sweep: Sweep) -> Iterator[str]:
    """Every remark once, with the rows that have it."""
    rows: dict[str, list[str]] = {}
    for row in sweep.rows:
        if row.note:
            rows.setdefault(row.note, []).append(row.name)
    if rows:
        yield "<h3>Errors and repeated attempts</h3>"
    for text, names in rows.items():
        listed = "".join(f"<li>{escape(name)}</li>" for name in names)
        lines = "<br>".join(escape(line) for line in text.splitlines())
        label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        yield fold(label, f"<p>{lines}</p><ul>{listed}</ul>", opened=True)


# -------------------------------------------------------------------------------------------------------------- plots


def _plots(sweep: Sweep) -> Iterator[str]:
    """Score over time, for each source of times, and over file size; for each model unless scores compare."""
    for model, rows in _groups(sweep).items():
        of_model = f" of {model}" if model else ""
        for basis in dict.fromkeys(row.time_basis for row in rows if row.milliseconds is not None):
            timed = [row for row in rows if row.time_basis == basis and row.milliseconds is not None]
            points = [(_label(row, model), row.milliseconds or 0.0, row.score or 0.0) for row in timed]
            yield _plot(f"Score and time{of_model}, {basis}", points, (f"time, {basis}", sweep.score), sweep, _time)
        sized = [row for row in rows if row.file_bytes]
        points = [(_label(row, model), float(row.file_bytes or 0), row.score or 0.0) for row in sized]
        yield _plot(f"Score and file size{of_model}", points, ("file size", sweep.score), sweep, size)


def _groups(sweep: Sweep) -> dict[str, list[SweepRow]]:
    groups: dict[str, list[SweepRow]] = {}
    for row in sweep.rows:
        if row.score is not None:
            groups.setdefault("" if sweep.comparable else row.model, []).append(row)
    return groups


def _label(row: SweepRow, model: str) -> str:
    parts = (row.target, row.precision, row.options) if model else (row.model, row.target, row.precision, row.options)
    return " ".join(filter(None, parts))


def _time(milliseconds: float) -> str:
    return duration(milliseconds / 1e3)


def _plot(title: str, points: list[_Point], axes: tuple[str, str], sweep: Sweep, text: Callable[[float], str]) -> str:
    if len(points) < 2:
        return ""
    chart = pareto_chart(points, axes, text, line=True, lower=sweep.lower)
    return f"<h3>{escape(title)}</h3>{chart}"
