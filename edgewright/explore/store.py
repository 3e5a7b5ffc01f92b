"""The folder of a sweep: rows in SQLite, and models, data and programs as files named by their SHA-256.

A row is durable when ``record`` returns: its files are synced before the transaction that names them, in WAL mode with
full synchronization. A process that is killed at any moment leaves complete rows only; a row has one outcome.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewright.errors import FileAccessError, FormatError, UsageError
from edgewright.explore.rows import STOPPED, Outcome, Row
from edgewright.files import make_folder, write_file

try:
    import fcntl
except ImportError:  # on Windows: two sweeps into one folder are not noticed there
    fcntl = None  # type: ignore[assignment]

DATABASE = "sweep.sqlite"
_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan (position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, row TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes (key TEXT PRIMARY KEY, outcome TEXT NOT NULL) WITHOUT ROWID;
"""


class Store:
    """The folder of a sweep; of one process at a time, if it writes. ``command``: the one that errors suggest."""

    def __init__(self, folder: str | os.PathLike[str], *, create: bool = False, command: str = "sweep") -> None:
        self.folder, self.command = Path(folder), command
        path = self.folder / DATABASE
        if create:
            make_folder(self.folder)
        elif not path.is_file():
            start = {"sweep": "sweep.toml", "search": "MODEL"}[command]
            remedy = f"Start one with `edgewright {command} {start} -o FOLDER`."
            raise FileAccessError(os.fspath(folder), f"must be the folder of a {command}", remedy=remedy)
        self._lock: int | None = None
        with self._errors():
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_TABLES)
        self._check_version()

    def _check_version(self) -> None:
        with self._errors(), self._transaction():
            self._set("version", str(_VERSION), replace=False)
        if self.meta("version") != str(_VERSION):
            rule = f"must be of version {_VERSION}"
            raise FormatError(rule, value=self.meta("version"), file=os.fspath(self.folder / DATABASE))

    def lock(self) -> None:
        """Keep other processes from running this sweep; released when the process ends, however it ends."""
        if fcntl is None or self._lock is not None:
            return
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            rule = f"another process is running this {self.command}"
            raise UsageError(os.fspath(self.folder), rule, remedy="Wait for it, or stop it.") from error
        self._lock = handle

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------------------------------------------------- rows

    def save_plan(self, rows: Sequence[Row], meta: Mapping[str, str]) -> None:
        """Replace the rows of the sweep. Outcomes stay: a row that comes back later is not run again."""
        with self._errors(), self._transaction():
            self._database.execute("DELETE FROM plan")
            lines = [(at, row.key, row.to_json()) for at, row in enumerate(rows)]
            self._database.executemany("INSERT INTO plan VALUES (?, ?, ?)", lines)
            for name, value in meta.items():
                self._set(name, value)

    def plan(self) -> list[Row]:
        with self._errors():
            lines = self._database.execute("SELECT row FROM plan ORDER BY position").fetchall()
        return [Row.from_json(text) for (text,) in lines]

    def meta(self, name: str) -> str:
        with self._errors():
            line = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return "" if line is None else str(line[0])

    def set_meta(self, name: str, value: str) -> None:
        with self._errors(), self._transaction():
            self._set(name, value)

    def outcomes(self) -> dict[str, Outcome]:
        """Outcomes by the key of the row, also of rows that are not in the plan any more."""
        with self._errors():
            lines = self._database.execute("SELECT key, outcome FROM outcomes").fetchall()
        return {key: Outcome.from_json(text) for key, text in lines}

    def missing(self) -> list[Row]:
        """The rows to run: without an outcome, or with one that another attempt may change."""
        outcomes = self.outcomes()
        return [row for row in self.plan() if row.key not in outcomes or outcomes[row.key].status == STOPPED]

    def record(self, key: str, outcome: Outcome) -> None:
        """Make an outcome durable."""
        with self._errors(), self._transaction():
            self._database.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", (key, outcome.to_json()))

    # ---------------------------------------------------------------------------------------------------------- files

    def put(self, data: bytes) -> str:
        """Store a file; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        if not path.is_file():
            make_folder(path.parent)
            write_file(path, [data])
        return digest

    def put_inputs(self, inputs: Mapping[str, Callable[[], bytes]]) -> None:
        """Store models and data, by the digests of their contents, unless they are there already."""
        for digest, save in inputs.items():
            stored = self.meta(f"input:{digest}")
            if not stored or not self.path(stored).is_file():
                self.set_meta(f"input:{digest}", self.put(save()))

    def get(self, digest: str) -> bytes:
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise FileAccessError(os.fspath(path), f"cannot be opened: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            remedy = f"Delete it and start the {self.command} again, with the same folder."
            raise FormatError("must have the contents that its name is the SHA-256 of", remedy=remedy, file=str(path))
        return data

    def path(self, digest: str) -> Path:
        return self.folder / "files" / digest[:2] / digest

    # ------------------------------------------------------------------------------------------------------- database

    def _set(self, name: str, value: str, *, replace: bool = True) -> None:
        action = "REPLACE" if replace else "IGNORE"
        self._database.execute(f"INSERT OR {action} INTO meta VALUES (?, ?)", (name, value))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        path = os.fspath(self.folder / DATABASE)
        try:
            yield
        except sqlite3.OperationalError as error:
            remedy = f"Make room or check the permissions, then: edgewright {self.command} --resume {self.folder}"
            raise FileAccessError(path, f"cannot be used: {error}", remedy=remedy) from error
        except sqlite3.DatabaseError as error:
            raise FormatError(f"must be a database of a sweep: {error}", file=path) from error


def figures_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a compile report that a row keeps; the rest is in a file."""
    names = (
        "bytes", "planned_bytes", "sram", "sqnr", "agreement", "samples", "evaluated_on", "metric", "host_ms",
        "estimated_ms", "estimated_range_ms", "estimate_basis", "simulated", "backend", "operators", "taken",
    )  # fmt: skip
    methods = report["methods"].values()
    left = [operator for method in methods for operator in method["operators"] if not operator["backend"]]
    cpu = {f"cpu_{name}": sum(operator[name] for operator in left) for name in ("macs", "bytes")}
    return {**{name: report[name] for name in names}, "coverage": report["coverage"]["macs"], **cpu}
