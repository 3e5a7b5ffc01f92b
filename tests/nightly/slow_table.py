"""The committed outcomes of the slow tests, a row for each file, and the table of them in ``docs/soundness.md``.

A complete run takes hours. A row is written when all tests of its file have run, with the commit and the day, so that
any machine continues where another one stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("slow.json")
PAGE = ROOT / "docs" / "soundness.md"
BEGIN, END = "<!-- slow: begin -->", "<!-- slow: end -->"


@dataclass(frozen=True)
class Row:
    """Outcomes of a file's slow tests at a commit."""

    tests: int
    passed: int
    skipped: int
    failed: tuple[str, ...]
    commit: str
    date: str


def read_rows(path: Path = TABLE) -> dict[str, Row]:
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())
    return {file: Row(**{**row, "failed": tuple(row["failed"])}) for file, row in rows.items()}


def write_rows(rows: Mapping[str, Row], path: Path = TABLE) -> None:
    path.write_text(json.dumps({file: asdict(row) for file, row in sorted(rows.items())}, indent=1) + "\n")


def missing(files: Mapping[str, int], rows: Mapping[str, Row]) -> list[str]:
    """Files without a row, or with another number of tests than when they ran, or with failures."""
    return [f for f, count in files.items() if f not in rows or rows[f].tests != count or rows[f].failed]


def write_page(files: Mapping[str, int], rows: Mapping[str, Row], page: Path = PAGE) -> None:
    """Replace what is between the page's markers."""
    text = page.read_text()
    head, rest = text.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{describe(files, rows)}\n{END}{rest.split(END)[1]}")


def describe(files: Mapping[str, int], rows: Mapping[str, Row]) -> str:
    current = {file: rows[file] for file in files if file in rows}
    if not current:
        return "No run is recorded yet."
    left = missing(files, rows)
    total = sum(row.tests for row in current.values())
    days = sorted({row.date for row in current.values()})
    commits = sorted({row.commit for row in current.values()})
    scope = "All files" if len(current) == len(files) else f"{len(current)} of {len(files)} files"
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    names = ", ".join(f"`{commit}`" for commit in commits)
    lines = [
        f"{scope}, {total:,} of {sum(files.values()):,} tests, {when}, commits {names}.",
        "",
        "| folder | files | tests | passed | failed | skipped |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [_line(f"`{folder}`", group) for folder, group in _folders(current).items()]
    lines.append(_line("all", list(current.values())))
    failed = [f"- `{test}`" for row in current.values() for test in row.failed]
    lines += ["", "Failed:", "", *failed] if failed else []
    unrecorded = [file for file in left if file not in current or not current[file].failed]
    lines += ["", f"Not recorded, or changed since: {', '.join(f'`{f}`' for f in unrecorded)}."] if unrecorded else []
    return "\n".join(lines)


def _folders(rows: Mapping[str, Row]) -> dict[str, list[Row]]:
    folders: dict[str, list[Row]] = {}
    for file, row in sorted(rows.items()):
        folders.setdefault("/".join(Path(file).parent.parts[:3]), []).append(row)
    return folders


def _line(name: str, rows: list[Row]) -> str:
    counts = (len(rows), sum(r.tests for r in rows), sum(r.passed for r in rows), sum(len(r.failed) for r in rows))
    cells = (name, *(f"{n:,}" for n in (*counts, sum(r.skipped for r in rows))))
    return f"| {' | '.join(cells)} |"
