"""What an NPU's command stream does by layer of the model: estimated cycles, and bytes that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from edgewright.console import clean, console, table
from edgewright.files import Source
from edgewright.formats.pte_reader import read_program
from edgewright.report.collect import delegate_contents
from edgewright.report.graphs import stream_groups
from edgewright.units import size

_NOTE = (
    "cycles: the estimate of the NPU's compiler; bytes: of operands, each counted once. Constants are in flash and "
    "scratch is in SRAM, unless the memory mode says otherwise."
)


def npu_layers(source: Source) -> list[dict[str, Any]]:
    """The passes of each layer, of all command streams in a program; none where a delegate has none to show."""
    program = read_program(source)
    contents = delegate_contents(program, None, {})
    return [
        {"method": plan.name, "delegate": index, **asdict(group)}
        for plan in program.execution_plan
        for index, delegate in enumerate(plan.delegates)
        for group in stream_groups(contents(delegate))
    ]


def show_npu_layers(rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    memories = sorted({memory for row in rows for memory in row["traffic"]})
    cells = []
    for row in rows:
        cycles = "" if row["cycles"] is None else f"{row['cycles']:,}"
        moved = (size(row["traffic"].get(memory, 0)) for memory in memories)
        cells.append((clean(row["layer"]), row["operator"], cycles, f"{row['macs']:,}", *moved))
    heads = ("layer", "operations", ">cycles", ">MACs", *(f">{memory}" for memory in memories))
    console().print(table("NPU by layer", heads, cells, flexible="operations"))
    console().print(_NOTE, soft_wrap=True)
