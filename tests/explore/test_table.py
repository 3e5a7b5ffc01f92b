"""The results as records: what is Pareto-optimal, what differs from run to run, and the files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgewright.errors import MissingError
from edgewright.explore.rows import DONE, FAILED, Outcome, Row
from edgewright.explore.store import Store
from edgewright.explore.table import MEASURED, records, stable, to_json, write_parquet


def filled(folder: Path, figures: list[dict[str, Any]], better: str = "higher") -> Store:
    """A store with a row per dictionary of figures; an empty one is a row that failed."""
    store = Store(folder, create=True)
    plan = [Row(f.get("model", "m"), "xnnpack", f"p{n}", f"{n}", "d") for n, f in enumerate(figures)]
    store.save_plan(plan, {"better": better})
    for row, values in zip(plan, figures, strict=True):
        done = Outcome(DONE, {k: v for k, v in values.items() if k != "model"})
        outcome = done if values else Outcome(FAILED, error="e")
        store.record(row.key, outcome)
    return store


def best(store: Store) -> list[bool]:
    return [line["best"] for line in records(store)]


def test_what_nothing_beats_is_best(tmp_path: Path) -> None:
    figures = [
        {"bytes": 100, "host_ms": 1.0, "sqnr": 30.0}, {"bytes": 200, "host_ms": 2.0, "sqnr": 40.0},
        {"bytes": 200, "host_ms": 2.0, "sqnr": 39.0}, {"bytes": 300, "host_ms": 0.5, "sqnr": 20.0}, {},
    ]  # fmt: skip
    assert best(filled(tmp_path, figures)) == [True, True, False, True, False]


def test_a_lower_metric_may_be_better(tmp_path: Path) -> None:
    figures = [{"bytes": 100, "metric": 0.1}, {"bytes": 100, "metric": 0.2}]
    assert best(filled(tmp_path / "lower", figures, "lower")) == [True, False]
    assert best(filled(tmp_path / "higher", figures)) == [False, True]


def test_only_comparable_rows_are_compared(tmp_path: Path) -> None:
    """SQNR of two models, and times of two sources, are not."""
    figures = [
        {"model": "a", "bytes": 100, "sqnr": 30.0}, {"model": "b", "bytes": 50, "sqnr": 40.0},
        {"model": "a", "bytes": 200, "estimated_ms": 1.0, "estimate_basis": "Vela", "sqnr": 20.0},
    ]  # fmt: skip
    assert best(filled(tmp_path / "sqnr", figures)) == [True, True, True]
    scored = [{**f, "metric": f["sqnr"]} for f in figures[:2]]
    assert best(filled(tmp_path / "metric", scored)) == [False, True]


def test_whose_word_a_time_is(tmp_path: Path) -> None:
    figures = [
        {"bytes": 1, "host_ms": 2.0, "sqnr": 1.0},
        {"bytes": 1, "estimated_ms": 3.0, "host_ms": 2.0, "estimate_basis": "Vela's estimate", "sqnr": 1.0},
        {"bytes": 1, "estimated_ms": 3.0, "estimated_range_ms": [3.0, 9.0], "estimate_basis": "a formula", "sqnr": 1.0},
    ]
    lines = records(filled(tmp_path, figures))
    assert [(line["milliseconds"], line["time_basis"]) for line in lines] == [
        (2.0, MEASURED), (3.0, "by Vela's estimate"), (None, "at least 3 ms by a formula"),
    ]  # fmt: skip
    assert stable(lines[0])["milliseconds"] is None and stable(lines[1])["milliseconds"] == 3.0
    assert "seconds" not in stable(lines[0]) and json.loads(to_json(lines)) == lines


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = records(filled(tmp_path, [{"bytes": 7, "sqnr": 30.0}, {}]))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingError, match=r"--parquet: needs the package pyarrow\n  pip install pyarrow"):
            write_parquet(lines, tmp_path / "t.parquet")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    write_parquet(lines, tmp_path / "t.parquet")
    table = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["file_bytes"] == [7, None] and table["status"] == ["done", "failed"]
