"""``RowTables``: tables of which a call reads single rows, such as embeddings, do not stay in memory.

A mapped file's pages are resident once they were read, with their neighbours. A table that only gathers read is mapped
anew from time to time, so that the rows of past calls do not count as this process's memory. The operating system keeps
them in its page cache; reading a row again costs a page fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.graph.memory import release_pages, use_small_pages
from edgewright.engine.plan import ROW_GATHER, Address, Plan, Step
from edgewright.ir.graph import Array

_MIN_BYTES = 1 << 20  # of tables that are worth a system call
_ROWS = 16  # that may be read between two of them: each may make some hundred KiB resident


class RowTables:
    """``rows``: of the tables that a call reads."""

    def __init__(self, tables: Sequence[Array], rows: int) -> None:
        self.tables, self.rows, self._read = tables, rows, 0
        for table in tables:
            use_small_pages(table)

    @classmethod
    def of(cls, plan: Plan) -> RowTables | None:
        """The tables of a plan; None if it has none."""
        readers: dict[int, list[Step]] = {}
        for step in plan.steps:
            for slot in step.args:
                if isinstance(slot, Address) and slot.buffer == "shared":
                    readers.setdefault(slot.index, []).append(step)
        found = {
            index: steps for index, steps in readers.items()
            if plan.shared[index].nbytes >= _MIN_BYTES and all(s.kernel.startswith(ROW_GATHER) for s in steps)
        }  # fmt: skip
        rows = sum(step.units for steps in found.values() for step in steps)
        return cls([plan.shared[index] for index in found], rows) if found else None

    def release(self) -> None:
        """Call after every call of the graph."""
        self._read += self.rows
        if self._read >= _ROWS:
            self._read = 0
            for table in self.tables:
                release_pages(table)
