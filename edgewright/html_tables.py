"""HTML tables for notebooks, without scripts and style sheets; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = "text-align:{};padding:2px 10px 2px 0;border-bottom:1px solid #8884"


def html_table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table; a head that starts with ``>`` is aligned right.

    >>> html_table(("a", ">b"), [("<x>", 1)]).count("&lt;x&gt;")
    1
    """
    sides = ["right" if head.startswith(">") else "left" for head in heads]

    def row(cells: Sequence[object], tag: str) -> str:
        elements = (
            f'<{tag} style="{_STYLE.format(side)}">{escape(str(cell))}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(elements)}</tr>"

    body = "".join(row(line, "td") for line in lines)
    return f"<table style='border-collapse:collapse'>{row([h.lstrip('>') for h in heads], 'th')}{body}</table>"
