#!/usr/bin/env python
"""Draws ``docs/architecture.svg`` from the table of packages in ``docs/architecture.md``.

``python tools/architecture.py`` writes the picture; with ``--check`` it fails if the picture is not up to date.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
BEGIN, END = "<!-- packages: begin -->", "<!-- packages: end -->"
GROUPS = {
    "shared": ("base", "ir", "formats", "backends.framework"),
    "runs files, without torch": ("engine", "lowering.passes", "runtime"),
    "compiles models; delegates run without torch": ("frontend", "lowering", "quantize", "program", "backends"),
    "is called by people": ("report", "bare_metal", "api", "llm", "compat", "explore", "peers", "demo", "cli", "entry"),
}
_COLORS = ("#e8eef7", "#e6f4ea", "#fdf1e0", "#f3e8fd")
_WIDTH, _ROW, _PAD, _TITLE = 760, 30, 12, 24


def packages(text: str) -> list[tuple[str, str]]:
    """Names and descriptions of the table's rows, lowest package first; the table has it last."""
    lines = text.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(name.strip("`"), summary) for name, summary in reversed(cells)]


def draw(rows: list[tuple[str, str]]) -> str:
    """Groups of packages, what people call on top: arrows of imports would all point down."""
    summaries, parts, y = dict(rows), [], _PAD
    for (title, names), color in zip(reversed(GROUPS.items()), reversed(_COLORS), strict=True):
        height = _TITLE + _ROW * len(names) + _PAD
        parts.append(f'<rect x="{_PAD}" y="{y}" width="{_WIDTH - 2 * _PAD}" height="{height}" rx="8" fill="{color}"/>')
        parts.append(f'<text x="{2 * _PAD}" y="{y + 17}" font-style="italic" fill="#444">{escape(title)}</text>')
        for at, name in enumerate(reversed(names)):
            line = y + _TITLE + _ROW * at + 18
            summary = summaries[name].replace("`", "")
            shown = summary if len(summary) <= 78 else summary[:77].rsplit(" ", 1)[0] + " …"
            parts.append(f'<text x="{2 * _PAD}" y="{line}" font-weight="bold" fill="#111">{escape(name)}</text>')
            parts.append(f'<text x="180" y="{line}" fill="#333">{escape(shown)}</text>')
        y += height + _PAD
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" font-family="sans-serif" font-size="13">'
    )
    label = "<title>The packages of Edgewright: each may import those below it</title>"
    return "\n".join([head, label, f'<rect width="{_WIDTH}" height="{y}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def main(arguments: list[str]) -> int:
    picture = draw(packages(PAGE.read_text()))
    if "--check" in arguments:
        return int(PICTURE.read_text() != picture)
    PICTURE.write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
