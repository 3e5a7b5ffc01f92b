"""Tables of which calls read single rows do not stay in memory."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewright.engine.jit.row_tables import RowTables
from edgewright.engine.jit.threads import address_of
from edgewright.engine.plan import ROW_GATHER, Address, Plan, Step
from edgewright.ir.graph import Array
from tests.support.memory import resident_bytes

SIZE = 2 << 20


def plan(shared: list[Array], *reads: tuple[str, int], rows: int = 8) -> Plan:
    steps = tuple(Step(kernel, (Address("shared", 0, index), 3), rows, 1) for kernel, index in reads)
    return Plan(steps, {}, np.zeros(0, np.uint8), 0, 0, (), (), shared=shared)


def mapped(path: Path) -> Array:
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_READ), np.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked up in /proc")
def test_rows_of_past_calls_do_not_stay_in_memory(tmp_path: Path) -> None:
    table = mapped(tmp_path / "table")
    expected = table.copy()
    tables = RowTables.of(plan([table], (f"{ROW_GATHER}_1", 0)))
    assert tables is not None
    assert resident_bytes(table) == SIZE
    tables.release()  # 8 rows: not yet
    assert resident_bytes(table) == SIZE
    tables.release()
    assert resident_bytes(table) == 0
    np.testing.assert_array_equal(table, expected)


def test_tables_are_what_only_gathers_read() -> None:
    shared = [np.zeros(SIZE, np.uint8), np.zeros(SIZE, np.uint8), np.zeros(512, np.uint8)]
    gather = f"{ROW_GATHER}_1"
    assert RowTables.of(plan(shared, ("gemv", 0), (gather, 0), ("gemv", 1), (gather, 2))) is None
    tables = RowTables.of(plan(shared, ("gemv", 0), (gather, 1), (gather, 1)))
    assert tables is not None
    assert [address_of(table) for table in tables.tables] == [address_of(shared[1])]
    assert tables.rows == 16
    for _ in range(3):
        tables.release()  # memory that is no file's stays
    assert not shared[1].any()
