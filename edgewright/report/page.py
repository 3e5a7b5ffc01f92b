"""The page: one HTML file without network access, which works offline, in print, and without scripts as tables.

Style and script are inlined and named by their hashes in the Content-Security-Policy, which allows nothing else. Names
from files only ever appear as escaped text or inside JSON that the script reads as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from edgewright._version import VERSION
from edgewright.files import write_file
from edgewright.report import sections
from edgewright.report.markup import clean, escape
from edgewright.report.model import FileReport, GraphView, Node, Report
from edgewright.report.sweep import sweep_section

_TABS = (
    ("overview", "Overview", sections.overview),
    ("graph", "Graph", None),
    ("layers", "Layers", lambda file: sections.layers(file.layers)),
    ("memory", "Memory", lambda file: sections.memory(file.memory)),
    ("timeline", "Timeline", sections.timeline),
)
_NO_SCRIPT = "The drawing of the graph needs JavaScript; the tables below have the same contents."


def save(report: Report, path: str | os.PathLike[str]) -> int:
    """Write the page; returns its bytes."""
    return write_file(path, [page(report).encode()])


def page(report: Report) -> str:
    """The page as text."""
    style, script = _asset("report.css"), _asset("report.min.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    contents = _contents(report)
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in contents)
    bodies = [_section(*content) for content in contents]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(report.title)} · Edgewright</title><style>{style}</style></head><body>"
        f"<header><h1>{escape(report.title)}</h1><p>Edgewright {VERSION}</p>"
        f'<nav aria-label="Sections">{links}</nav>{_chooser(report.files)}</header><main>{"".join(bodies)}</main>'
        f'<script type="application/json" id="data">{_data(report)}</script><script>{script}</script></body></html>\n'
    )


def _contents(report: Report) -> list[tuple[str, str, str]]:
    """The tabs: key, name and contents."""
    contents = [("sweep", "Sweep", sweep_section(report.sweep))] if report.sweep is not None else []
    if report.files or report.sweep is None:
        contents += [(key, name, _per_file(report, key, render)) for key, name, render in _TABS]
    if len(report.files) > 1 or report.failures:
        contents.append(("compare", "Compare", sections.compare(report)))
    return contents


def _asset(name: str) -> str:
    return (files("edgewright.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _section(key: str, name: str, content: str) -> str:
    note = f"<noscript><p>{_NO_SCRIPT}</p></noscript>" if key == "graph" else ""
    return f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{name}</h2>{note}{content}</section>'


def _per_file(report: Report, key: str, render: Callable[[FileReport], str] | None) -> str:
    """A part per file; with several files each has a heading, and the script shows the chosen one."""
    parts = []
    for index, file in enumerate(report.files):
        content = _graphs(file, index) if render is None else render(file)
        heading = f'<h3 class="name">{escape(file.name)}</h3>' if len(report.files) > 1 else ""
        parts.append(f'<div class="file" data-file="{index}">{heading}{content}</div>')
    return "".join(parts)


def _graphs(file: FileReport, index: int) -> str:
    return "".join(sections.graph(view, f"{index}.{n}") for n, view in enumerate(file.graphs))


def _chooser(reports: Sequence[FileReport]) -> str:
    if len(reports) < 2:
        return ""
    options = "".join(f'<option value="{i}">{escape(file.name)}</option>' for i, file in enumerate(reports))
    return f'<p id="chooser" hidden><label for="file">File</label> <select id="file">{options}</select></p>'


# -------------------------------------------------------------------------------------------------- data of the script


def _data(report: Report) -> str:
    graphs = {f"{i}.{n}": graph_data(v) for i, file in enumerate(report.files) for n, v in enumerate(file.graphs)}
    text = json.dumps(graphs, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Nothing in it may end the script element, start a comment, or be a line separator.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def graph_data(view: GraphView) -> dict[str, Any]:
    """A graph for the script: texts that repeat are indices into ``texts``; what is empty is left out."""
    texts: dict[str, int] = {}

    def index(text: str) -> int:
        return texts.setdefault(clean(text), len(texts))

    def node(item: Node) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "n": clean(item.name), "o": index(item.operator), "m": index(item.module), "p": index(item.placement),
            "i": list(item.inputs), "s": [clean(s) for s in item.outputs], "q": [clean(q) for q in item.quantization],
            "l": index(item.source) if item.source else None, "r": [index(rule) for rule in item.rules],
            "c": item.macs, "b": item.bytes, "w": item.weights, "t": item.ms, "e": item.error, "y": item.cycles,
            "h": [[clean(h.title), h.low, h.high, h.counts, h.values, h.sampled] for h in item.histograms],
        }  # fmt: skip
        return {key: value for key, value in plain.items() if value not in (None, [], 0) or key in "omp"}

    nodes = [node(item) for item in view.nodes]
    return {"title": clean(view.title), "texts": list(texts), "nodes": nodes}
