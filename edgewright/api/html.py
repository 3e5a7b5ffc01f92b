"""Results of a compilation as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from edgewright.api.compile_report import LEGEND, CompileReport, columns, rows, time_note
from edgewright.html_tables import html_table


def result_html(reports: Sequence[CompileReport], failures: Mapping[str, Exception] | None = None) -> str:
    """The table of targets with its legend, the operators left on the CPU with reasons, and failures."""
    parts = [html_table(columns(), rows(reports))]
    if reports:
        parts.append(f"<p>{escape(LEGEND)}<br>{escape(time_note(reports))}</p>")
    for report in reports:
        rejected = [v for method in report.methods.values() for v in method.rejected]
        if rejected:
            lines = [(v.operator, v.module, "; ".join(v.rejections)) for v in rejected]
            table = html_table(("operator", "module", "why"), lines)
            title = escape(f"{report.target}: {report.counts.cpu_summary}")
            parts.append(f"<details><summary>{title}</summary>{table}</details>")
        if report.simulated:
            parts.append(f"<p>{escape(report.target)}: runs on this machine only: {escape(report.simulated)}</p>")
    for name, error in (failures or {}).items():
        parts.append(f"<p><b>{escape(name)} failed</b>: {escape(str(error))}</p>")
    return f"<div>{''.join(parts)}</div>"
