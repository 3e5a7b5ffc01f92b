"""``edgewright sweep``: options, the table, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgewright.explore.rows import DONE, FAILED, STOPPED, Outcome, Row
from edgewright.explore.store import Store
from tests.cli.cli import Cli
from tests.report.programs import CIFARNET, HOSTILE, text_of


def results(folder: Path, name: str = "net") -> Path:
    """A store as a sweep leaves it, with a program, an error, and a row that is missing."""
    with Store(folder, create=True) as store:
        rows = [Row(name, "xnnpack", precision, precision, "d") for precision in ("float", "int8", "a", "b", "c")]
        store.save_plan(rows, {"better": "higher"})
        figures = {"planned_bytes": 2048, "coverage": 1.0, "samples": 4, "evaluated_on": "held-out"}
        digest = store.put(CIFARNET.read_bytes())
        for row, size, sqnr in ((rows[0], 4096, 120.0), (rows[1], 1024, 40.0)):
            values = {**figures, "bytes": size, "host_ms": 0.5, "sqnr": sqnr}
            store.record(row.key, Outcome(DONE, values, {"pte": digest}))
        store.record(rows[2].key, Outcome(FAILED, error="accuracy: metric: raised", traceback="in net.py\nline 3"))
        store.record(rows[3].key, Outcome(STOPPED, error="gave up", attempts=2, reasons=("its worker died",)))
    return folder


def test_the_table_is_shown(cli: Cli, tmp_path: Path) -> None:
    shown = cli("sweep", "--show", results(tmp_path))
    assert shown.code == 0
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["*", "net", "xnnpack", "int8", "100.0%", "1.00", "KiB", "2.00", "KiB", "500", "µs", "40.0", "done"] in lines
    assert "2 done, 1 failed, 1 stopped, 1 missing" in shown.out
    assert "accuracy: metric: raised" in shown.out and "  line 3" in shown.out and "stopped, 2 attempts" in shown.out


def test_json(cli: Cli, tmp_path: Path) -> None:
    lines = json.loads(cli("sweep", "--show", results(tmp_path), "--json").out)
    assert [line["status"] for line in lines] == ["done", "done", "failed", "stopped", "missing"]


def test_the_page(cli: Cli, tmp_path: Path) -> None:
    shown = cli("sweep", "--show", results(tmp_path / "r"), "--html")
    assert "wrote" in shown.out and "sweep.html" in shown.out
    page = (tmp_path / "r" / "sweep.html").read_text()
    text = text_of(page)
    assert 'href="#sweep"' in page and 'href="#graph"' in page and 'href="#compare"' in page
    assert "5 rows: 2 done, 1 failed, 1 stopped, 1 missing" in text and "Score and file size of net" in text
    assert 'class="frontier"' in page and "line 3" in text and "attempt 1: its worker died" in text
    assert "connect-src" not in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_the_page_with_hostile_names(cli: Cli, tmp_path: Path) -> None:
    assert cli("sweep", "--show", results(tmp_path, HOSTILE), "--html", tmp_path / "h.html").code == 0
    assert "<img" not in (tmp_path / "h.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "takes one of: a TOML file, --resume FOLDER, --show FOLDER; got nothing"),
        (["s.toml", "--resume", "r"], "takes one of"),
        (["s.toml"], "-o: goes with a TOML file"),
        (["--resume", "r", "-o", "x"], "-o: goes with a TOML file"),
        (["--resume", "r", "--html"], "--html: goes with --show"),
        (["--resume", "r", "--workers", "0"], "--workers: must be 1 or more"),
        (["--resume", "r", "--workers", "2", "--scheduler", "tcp://h:1"], "--workers: is for this machine"),
    ],
)
def test_options_are_checked(cli: Cli, options: list[str], message: str) -> None:
    shown = cli("sweep", *options)
    assert shown.code == 2 and message in shown.err


def test_folders_and_files_that_are_not_there(cli: Cli, tmp_path: Path) -> None:
    assert "must be the folder of a sweep" in cli("sweep", "--resume", tmp_path).err
    shown = cli("sweep", tmp_path / "no.toml", "-o", tmp_path / "r")
    assert shown.code == 3 and "cannot be opened" in shown.err


def test_a_sweep_that_was_killed_before_its_rows_were_stored_starts_again(cli: Cli, tmp_path: Path) -> None:
    Store(tmp_path, create=True).close()
    shown = cli("sweep", "--resume", tmp_path)
    assert shown.code == 3 and "must be the folder of a sweep whose rows are stored" in shown.err
    assert f"edgewright sweep sweep.toml -o {tmp_path}" in shown.err
