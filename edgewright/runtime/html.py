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
        method = describe(plan)
        signature = [", ".join(map(str, side)) for side in (method.inputs, method.outputs)]
        calls = f"{len(method.delegates)} of {method.instructions}"
        lines.append((method.name, *signature, calls, size(method.planned_bytes), size(method.constant_bytes)))
    heads = ("method", "inputs", "outputs", ">delegate calls of instructions", ">planned memory", ">constants")
    return html_table(heads, lines)
