"""What an NPU's command stream does by layer of the model: estimated cycles and time, and bytes that it reads and
writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from edgewright.console import clean, console, table
from edgewright.files import Source
from edgewright.formats.pte_reader import read_program
from edgewright.lowering.estimates import seconds_per_cycle
from edgewright.program import manifest
from edgewright.report.collect import delegate_contents
from edgewright.report.graphs import stream_groups
from edgewright.units import duration, size

_NOTE = (
    "cycles, time: the estimate of the NPU's compiler; bytes: of operands, each counted once. Constants are in flash "
    "and scratch is in SRAM, unless the memory mode says otherwise."
)


def npu_layers(source: Source) -> list[dict[str, Any]]:
    """The passes of each layer, of all command streams in a program; none where a delegate has none to show."""
    program = read_program(source)
    contents = delegate_contents(program, None, {})
    length = seconds_per_cycle((manifest.read(program) or {}).get("estimates"))
    return [
        {"method": plan.name, "delegate": index, **asdict(group),
         "seconds": None if length is None or group.cycles is None else length * group.cycles}
        for plan in program.execution_plan
        for index, delegate in enumerate(plan.delegates)
        for group in stream_groups(contents(delegate))
    ]  # fmt: skip


def _width(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The columns of a terminal that a table needs with every cell on one line."""
    return sum(max(map(len, column)) + 2 for column in zip(heads, *cells, strict=True))


def show_npu_layers(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    memories = sorted({memory for row in rows for memory in row["traffic"]})
    cells = []
    for row in rows:
        cycles = "" if row["cycles"] is None else f"{row['cycles']:,}"
        time = "" if row["seconds"] is None else duration(row["seconds"])
        moved = (size(row["traffic"].get(memory, 0)) for memory in memories)
        cells.append((clean(row["layer"]), row["operator"], cycles, time, f"{row['macs']:,}", *moved))
    heads = ("layer", "operations", ">cycles", ">time", ">MACs", *(f">{memory}" for memory in memories))
    if _width(heads, cells) <= console().width:
        console().print(table("NPU by layer", heads, cells, flexible="operations"))
    else:
        console().print(table("NPU by layer: time", heads[:5], [row[:5] for row in cells], flexible="operations"))
        moves = [(row[0], *row[5:]) for row in cells]
        console().print(table("NPU by layer: bytes", (heads[0], *heads[5:]), moves, flexible="layer"))
    console().print(_NOTE, soft_wrap=True)
