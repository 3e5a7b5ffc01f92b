"""A loaded program as HTML, for notebooks."""

from __future__ import annotations

from edgewright.formats.schema import Program
from edgewright.html_tables import html_table
from edgewright.runtime.metadata import describe
from edgewright.units import size


def program_html(program: Program) -> str:
    """A loaded program's methods: signatures, memory, operators and delegates."""
    lines = []
    for plan in program.execution_plan:
        found = describe(plan)
        ends = [", ".join(map(str, side)) for side in (found.inputs, found.outputs)]
        calls = f"{len(found.delegates)} of {found.instructions}"
        lines.append((found.name, *ends, calls, size(found.planned_bytes), size(found.constant_bytes)))
    heads = ("method", "inputs", "outputs", ">delegate calls of instructions", ">planned memory", ">constants")
    return html_table(heads, lines)
