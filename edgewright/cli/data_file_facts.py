"""Contents of ``.ptd``, ``.bpte`` and ``.etdp`` files as plain data, with the keys of ``inspect --json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgewright.cli.program_facts import Facts, program_facts
from edgewright.formats.bpte import BundledProgram, Data
from edgewright.formats.etdump import ETDump, Event
from edgewright.formats.ptd import PtdEntry
from edgewright.formats.pte_reader import read_program
from edgewright.ir.dtypes import ScalarType


def data_facts(entries: Mapping[str, PtdEntry]) -> Facts:
    """The tensors and blobs of a ``.ptd``, largest first."""
    rows: list[Facts] = []
    for key, entry in entries.items():
        layout = entry.layout
        rows.append(
            {
                "name": key,
                "kind": "blob" if layout is None else "tensor",
                "type": None if layout is None else ScalarType(layout.scalar_type).name.lower(),
                "shape": None if layout is None else list(layout.sizes),
                "bytes": len(entry.data),
            }
        )
    return {"entries": sorted(rows, key=lambda row: -int(row["bytes"]))}


def bundle_facts(bundle: BundledProgram, **options: Any) -> Facts:
    """The test cases of a ``.bpte``, and the program in it."""
    program = read_program(memoryview(bundle.program))
    suites = [
        {
            "method": name,
            "cases": [
                {
                    "inputs": [_describe(v) for v in case.inputs],
                    "expected": [_describe(v) for v in case.expected],
                }
                for case in cases
            ],
        }
        for name, cases in bundle.suites.items()
    ]
    return {"suites": suites, "program_bytes": len(bundle.program), "program": program_facts(program, None, **options)}


def _describe(value: Data) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return f"{type(value).__name__} {value!r}"


def profile_facts(dump: ETDump) -> Facts:
    """The runs of a profile and their events; times are milliseconds since the run's first event."""
    return {"runs": [_run(run.name, run.events or []) for run in dump.run_data or ()]}


def _run(name: str | None, events: Sequence[Event]) -> Facts:
    timed = [e.profile_event for e in events if e.profile_event is not None]
    first = min((e.start_time for e in timed), default=0)
    rows = [
        {
            "name": event.name or event.delegate_debug_id_str or f"delegate event {event.delegate_debug_id_int}",
            "chain": event.chain_index,
            "instruction": event.instruction_id,
            "start_ms": (event.start_time - first) / 1e6,
            "ms": (event.end_time - event.start_time) / 1e6,
        }
        for event in timed
    ]
    return {
        "name": name or "",
        "events": rows,
        "allocations": sum(e.allocation_event is not None for e in events),
        "debug_events": sum(e.debug_event is not None for e in events),
    }
