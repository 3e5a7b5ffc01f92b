"""Results as HTML, for notebooks: one table that needs no script and no style sheet. Everything in it is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from edgewright.api.compile_report import LEGEND, CompileReport, columns, rows, time_note
from edgewright.formats.schema import Program
from edgewright.units import size

_STYLE = "text-align:{};padding:2px 10px 2px 0;border-bottom:1px solid #8884"


def html_table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table; a head that starts with ``>`` is aligned right.

    >>> html_table(("a", ">b"), [("<x>", 1)]).count("&lt;x&gt;")
    1
    """
    sides = ["right" if head.startswith(">") else "left" for head in heads]

    def row(cells: Sequence[object], tag: str) -> str:
        made = (
            f'<{tag} style="{_STYLE.format(side)}">{escape(str(cell))}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(line, "td") for line in lines)
    return f"<table style='border-collapse:collapse'>{row([h.lstrip('>') for h in heads], 'th')}{body}</table>"


def result_html(reports: Sequence[CompileReport], failures: Mapping[str, Exception] | None = None) -> str:
    """The table of targets, what its columns mean, what each left to the CPU and why, and what failed."""
    parts = [html_table(columns(), rows(reports))]
    if reports:
        parts.append(f"<p>{escape(LEGEND)}<br>{escape(time_note(reports))}</p>")
    for report in reports:
        refused = [v for method in report.methods.values() for v in method.refused]
        if refused:
            lines = [(v.operator, v.module, "; ".join(v.refusals)) for v in refused]
            told = html_table(("operator", "module", "why"), lines)
            title = escape(f"{report.target}: {report.counts.left_over}")
            parts.append(f"<details><summary>{title}</summary>{told}</details>")
        if report.simulated:
            parts.append(f"<p>{escape(report.target)}: runs on this machine only: {escape(report.simulated)}</p>")
    for name, error in (failures or {}).items():
        parts.append(f"<p><b>{escape(name)} failed</b>: {escape(str(error))}</p>")
    return f"<div>{''.join(parts)}</div>"


def program_html(program: Program) -> str:
    """A loaded program's methods: signatures, memory, operators and delegates."""
    from edgewright.runtime.metadata import describe

    lines = []
    for plan in program.execution_plan:
        found = describe(plan)
        ends = [", ".join(map(str, side)) for side in (found.inputs, found.outputs)]
        calls = f"{len(found.delegates)} of {found.instructions}"
        lines.append((found.name, *ends, calls, size(found.planned_bytes), size(found.constant_bytes)))
    heads = ("method", "inputs", "outputs", ">delegate calls of instructions", ">planned memory", ">constants")
    return html_table(heads, lines)
