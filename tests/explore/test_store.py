"""The folder of a sweep: rows are durable at once, have one outcome each, and survive whatever ends the process."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import edgewright.files
from edgewright.errors import FileAccessError, FormatError, UsageError
from edgewright.explore.rows import DONE, FAILED, STOPPED, Outcome, Row
from edgewright.explore.store import DATABASE, Store


def rows(count: int) -> list[Row]:
    return [Row(f"m{n}", "xnnpack", "int8", f"program{n}", "data") for n in range(count)]


def test_rows_come_back(tmp_path: Path) -> None:
    plan = [*rows(2), Row("a", "b", "c", "d", "e", {"quantize": "int8"}, {"integer_io": True}, chunks=(3, 2))]
    outcome = Outcome(DONE, {"bytes": 3}, {"pte": "ab"}, attempts=2, reasons=("its worker died",), seconds=1.5)
    with Store(tmp_path / "s", create=True) as store:
        store.save_plan(plan, {"sweep": "text"})
        store.record(plan[2].key, outcome)
    with Store(tmp_path / "s") as store:
        assert store.plan() == plan and store.meta("sweep") == "text"
        assert store.outcomes() == {plan[2].key: outcome}
        assert store.missing() == plan[:2]


def test_only_what_may_change_is_run_again(tmp_path: Path) -> None:
    plan = rows(3)
    with Store(tmp_path, create=True) as store:
        store.save_plan(plan, {})
        for row, status in zip(plan, (DONE, FAILED, STOPPED), strict=True):
            store.record(row.key, Outcome(status))
        assert store.missing() == plan[2:]
        store.record(plan[2].key, Outcome(DONE))
        assert store.missing() == [] and len(store.outcomes()) == 3


def test_outcomes_stay_when_the_plan_changes(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        store.save_plan(rows(2), {})
        store.record(rows(2)[1].key, Outcome(DONE))
        store.save_plan(rows(1), {})
        store.save_plan(rows(3), {})
        assert [row.model for row in store.missing()] == ["m0", "m2"]


def test_keys_depend_on_what_determines_the_result() -> None:
    row = rows(1)[0]
    others = [
        Row("m0", "xnnpack", "int8", "program0", "other"), Row("m0", "sm8550", "int8", "program0", "data"),
        Row("m0", "xnnpack", "int8", "program0", "data", {"quantize": "int8"}),
        Row("m0", "xnnpack", "int8", "program0", "data", options={"integer_io": True}),
        Row("m0", "xnnpack", "int8", "program0", "data", versions={"torch": "9"}),
        Row("m0", "xnnpack", "int8", "program0", "data", metric_source="changed"),
    ]  # fmt: skip
    assert len({other.key for other in (row, *others)}) == 7
    assert Row("renamed", "xnnpack", "label", "program0", "data").key == row.key


def test_files_by_hash(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        digest = store.put(b"contents")
        assert store.put(b"contents") == digest and store.get(digest) == b"contents"
        store.path(digest).write_bytes(b"damaged")
        with pytest.raises(FormatError, match="SHA-256"):
            store.get(digest)
        with pytest.raises(FileAccessError, match="cannot be opened"):
            store.get("0" * 64)


KILLED = """
import os, signal, sys
from edgewright.explore.rows import Outcome
from edgewright.explore.store import Store
from tests.explore.test_store import rows
store = Store(sys.argv[1], create=True)
store.lock()
store.save_plan(rows(50), {})
for row in rows(50)[:20]:
    store.put(row.model.encode())
    store.record(row.key, Outcome("done", {"bytes": 1}))
    print(row.key, flush=True)
store._database.execute("BEGIN IMMEDIATE")
store._database.execute("INSERT INTO outcomes VALUES ('torn', '{}')")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_no_row_and_leaves_no_half_row(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    with Store(tmp_path) as store:
        store.lock()  # that of the killed process is gone
        assert sorted(store.outcomes()) == sorted(child.stdout.split()) and len(store.missing()) == 30


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store, Store(tmp_path) as other:
        store.lock()
        with pytest.raises(UsageError, match="another process is running this sweep"):
            other.lock()
        assert other.plan() == []  # looking is allowed


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, create=True) as store:
        store.save_plan(rows(400), {})
        store.record(rows(400)[0].key, Outcome(DONE))
        store._database.execute("PRAGMA max_page_count=8").fetchone()  # SQLite's own "disk is full"
        with pytest.raises(FileAccessError, match=r"full\n  Make room.*--resume"):
            [store.record(row.key, Outcome(DONE, {"text": "x" * 2000})) for row in rows(400)[1:]]
        stored = set(store.outcomes())

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(edgewright.files, "_replace", full)
        with pytest.raises(FileAccessError, match="No space left"):
            store.put(b"program")
    monkeypatch.undo()
    with Store(tmp_path) as store:
        assert set(store.outcomes()) == stored and rows(1)[0].key in stored
        assert store.get(store.put(b"program")) == b"program"


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="must be the folder of a sweep"):
        Store(tmp_path)
    (tmp_path / DATABASE).write_bytes(b"no database" * 1000)
    with pytest.raises(FormatError, match="must be a database of a sweep"):
        Store(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path, create=True).close()
    with sqlite3.connect(tmp_path / DATABASE) as database:
        database.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(FormatError, match="must be of version 1; got 99"):
        Store(tmp_path)
