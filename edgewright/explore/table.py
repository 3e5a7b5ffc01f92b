"""The results of a sweep as plain records, for tables, JSON, Parquet and the page, with the Pareto-optimal marked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewright.errors import MissingError
from edgewright.explore.rows import DONE, Outcome, Row
from edgewright.explore.store import Store
from edgewright.files import write_file

MEASURED = "measured during the sweep"
_TIMED_HERE = ("host_ms", "seconds", "attempts", "reasons")  # differs from run to run
Record = dict[str, Any]


def records(store: Store) -> list[Record]:
    """A record per row, in the order of the sweep. Rows without an outcome have the status ``missing``."""
    outcomes, sign = store.outcomes(), -1.0 if store.meta("better") == "lower" else 1.0
    lines = [_record(row, outcomes.get(row.key)) for row in store.plan()]
    _mark_best(lines, sign)
    return lines


def stable(record: Mapping[str, Any]) -> Record:
    """A record without what differs from run to run: times that were measured, and attempts."""
    fields = {name: value for name, value in record.items() if name not in _TIMED_HERE}
    if record.get("time_basis") == MEASURED:
        fields.update(milliseconds=None, best=None)
    return fields


def _record(row: Row, outcome: Outcome | None) -> Record:
    figures = {} if outcome is None else dict(outcome.figures)
    milliseconds, basis = _time(figures)
    return {
        "key": row.key, "model": row.model, "target": row.target, "precision": row.precision, **row.options,
        "status": "missing" if outcome is None else outcome.status,
        "file_bytes": figures.get("bytes"), "planned_bytes": figures.get("planned_bytes"),
        "sram_bytes": figures.get("sram"),
        "milliseconds": milliseconds, "time_basis": basis, "host_ms": figures.get("host_ms"),
        "metric": figures.get("metric"), "sqnr": figures.get("sqnr"), "agreement": figures.get("agreement"),
        "samples": figures.get("samples"), "evaluated_on": figures.get("evaluated_on"),
        "delegated_macs": figures.get("coverage"), "simulated": figures.get("simulated", ""),
        "error": "" if outcome is None else outcome.error, "traceback": "" if outcome is None else outcome.traceback,
        "pte": "" if outcome is None else outcome.files.get("pte", ""),
        "twin": "" if outcome is None else outcome.files.get("twin", ""),
        "seconds": None if outcome is None else outcome.seconds,
        "attempts": 0 if outcome is None else outcome.attempts,
        "reasons": [] if outcome is None else list(outcome.reasons), "best": False,
    }  # fmt: skip


def _time(figures: Mapping[str, Any]) -> tuple[float | None, str]:
    """Milliseconds of an inference and whose word they are. A lower bound is not a time to compare with others."""
    bounds, estimated = figures.get("estimated_range_ms"), figures.get("estimated_ms")
    if bounds is not None:
        return None, f"at least {bounds[0]:.3g} ms by {figures['estimate_basis']}"
    if estimated is not None:
        return estimated, f"by {figures['estimate_basis']}"
    measured = figures.get("host_ms")
    return measured, "" if measured is None else MEASURED


# ------------------------------------------------------------------------------------------------------ Pareto front


def score_of(record: Mapping[str, Any]) -> float | None:
    """The user's metric, or the SQNR where the sweep has none."""
    value = record["metric"] if record["metric"] is not None else record["sqnr"]
    return None if value is None else float(value)


def _mark_best(lines: Sequence[Record], sign: float) -> None:
    """Mark rows that no comparable row beats: smaller, faster and better in the score.

    Scores of different models compare only by the user's metric, and times only if one source says them."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for line in lines:
        if line["status"] == DONE and score_of(line) is not None:
            model = "" if line["metric"] is not None else line["model"]
            groups.setdefault((model, line["time_basis"]), []).append(line)
    for group in groups.values():
        points = [_point(line, sign) for line in group]
        for line, point in zip(group, points, strict=True):
            line["best"] = not any(_beats(other, point) for other in points)


def _point(line: Mapping[str, Any], sign: float) -> tuple[float, float, float]:
    """Less is better."""
    gain = sign if line["metric"] is not None else 1.0
    return float(line["file_bytes"]), float(line["milliseconds"] or 0.0), -gain * (score_of(line) or 0.0)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


# ------------------------------------------------------------------------------------------------------------- files


def to_json(lines: Sequence[Record]) -> str:
    return json.dumps(lines, indent=2, allow_nan=False)


def write_parquet(lines: Sequence[Record], path: str | os.PathLike[str]) -> int:
    """Write the records for pandas, Polars, DuckDB and others; returns the bytes written."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingError("--parquet", "needs the package pyarrow", remedy="pip install pyarrow") from error
    sink = pyarrow.BufferOutputStream()
    names = list(dict.fromkeys(name for line in lines for name in line))
    columns = {name: [line.get(name) for line in lines] for name in names}
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return write_file(Path(path), [sink.getvalue().to_pybytes()])
