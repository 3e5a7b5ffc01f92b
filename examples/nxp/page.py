"""What became of a model's operators, as one web page that needs nothing else."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from html import escape
from pathlib import Path

from edgewright.files import write_file
from edgewright.html_tables import html_table
from edgewright.lowering.partition.report import PartitionReport

_HEADS = ("operator", "node", "module", "runs on", ">multiply-accumulates", "why not on the NPU")


def write_page(path: Path, reports: Mapping[str, PartitionReport]) -> None:
    parts = [f"<h1>{escape(path.stem)}</h1>"]
    for method, report in reports.items():
        lines = [
            (
                v.operator,
                v.node,
                v.module,
                f"NPU, group {v.group}" if v.backend else "CPU",
                v.macs,
                "; ".join(v.rejections),
            )
            for v in report.verdicts
        ]
        parts += [
            f"<h2>{escape(method)}</h2><pre>{escape(str(report).splitlines()[0])}</pre>",
            html_table(_HEADS, lines),
        ]
    body = "".join(parts)
    style = "body{font-family:sans-serif;margin:2em}td,th{font-size:90%}"
    write_file(path, [f'<!doctype html><meta charset="utf-8"><style>{style}</style>{body}'.encode()])


def show_page(path: Path) -> None:
    webbrowser.open(path.resolve().as_uri())
