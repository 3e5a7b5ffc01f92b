"""What a run of slow tests leaves in the committed table, and what the next run still has to do."""

from __future__ import annotations

import json
from pathlib import Path

from tests.nightly.slow_table import BEGIN, END, Row, describe, missing, read_rows, write_page, write_rows
from tests.nightly.slow_tests import SlowTests

GOOD = Row(3, 2, 1, (), "abc", "2026-01-02")
FILES = {"tests/a/test_x.py": 3, "tests/a/b/test_y.py": 2}


def test_rows_are_written_and_read(tmp_path: Path) -> None:
    rows = {"tests/a/test_x.py": GOOD, "tests/a/b/test_y.py": Row(2, 1, 0, ("tests/a/b/test_y.py::t",), "d", "e")}
    write_rows(rows, tmp_path / "slow.json")
    assert read_rows(tmp_path / "slow.json") == rows
    assert read_rows(tmp_path / "absent.json") == {}


def test_missing_are_files_without_a_row_with_more_tests_or_with_failures() -> None:
    x, y = FILES
    assert missing(FILES, {}) == [x, y]
    assert missing(FILES, {x: GOOD, y: Row(2, 2, 0, (), "", "")}) == []
    assert missing(FILES, {x: GOOD, y: Row(1, 1, 0, (), "", "")}) == [y]
    assert missing(FILES, {x: GOOD, y: Row(2, 1, 0, ("t",), "", "")}) == [y]


def test_only_files_whose_tests_have_all_run_are_complete(tmp_path: Path) -> None:
    slow = SlowTests(tmp_path)
    x, y = FILES
    for file, count in ((x, 3), (y, 1)):
        lines = [json.dumps({"test": f"{file}::{n}", "outcome": "passed"}) for n in range(count)]
        slow.record_of(file).write_text("\n".join(lines))
    assert list(slow.complete(FILES)) == [x]


def test_the_page_says_what_ran_and_what_did_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    write_page(FILES, {"tests/a/test_x.py": GOOD}, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "1 of 2 files, 3 of 5 tests, 2026-01-02, commits `abc`." in text
    assert "| all | 1 | 3 | 2 | 0 | 1 |" in text
    assert "Not recorded, or changed since: `tests/a/b/test_y.py`." in text
    assert describe(FILES, {}) == "No run is recorded yet."
