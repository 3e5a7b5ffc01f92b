"""HTML fragments: text is escaped, tables can be sorted and work without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape
from itertools import chain, repeat

MAX_ROWS = 1_000  # rows of a table in a page
_COUNTED = 10  # rows from which a table says how many it has: it scrolls
_EXACT = 200.0  # decibels from which a result counts as exact
_LONG_NAME = 12  # characters of a first column that does not become narrower than that on a phone
_MAX_TEXT = 400  # characters of a name: files are not trusted
# Characters that change the direction of text could make a name look like another one.
_HIDDEN = {
    c: f"\\u{c:04x}" for c in (*range(0x20), 0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)
}


def clean(text: object) -> str:
    """Text from a file: shortened, with control characters made visible.

    >>> clean("a\\x1b[0m")
    'a\\\\u001b[0m'
    """
    shown = str(text)
    shown = shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"
    return shown.translate(_HIDDEN)


def escape(text: object) -> str:
    """Text as HTML, for elements and attributes.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return _escape(clean(text), quote=True)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, the number to sort by, a bar of this fraction, and classes."""

    text: str
    value: float | None = None
    bar: float | None = None
    style: str = ""


def decibels(value: float | None) -> Cell:
    """An SQNR, or an empty cell if it is not known."""
    if value is None:
        return Cell("")
    return Cell("exact" if value >= _EXACT else f"{value:.1f}", value)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell | str]], total: int | None = None) -> str:
    """A table that can be sorted; a head that starts with ``>`` is of numbers. ``total``: rows that there are."""
    lines = list(rows)
    shown = lines[:MAX_ROWS]
    total = len(lines) if total is None else total
    right = [head.startswith(">") for head in heads]
    head = "".join(
        f'<th scope="col"{" class=n" if r else ""}>{escape(h.lstrip(">"))}</th>'
        for h, r in zip(heads, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, line, right, chain([True], repeat(False))))}</tr>" for line in shown)
    more = f'<p class="more">The first {len(shown):,} of {total:,}.</p>' if total > len(shown) else ""
    counted = f"{escape(caption)} · {len(shown):,} rows" if len(shown) >= _COUNTED else escape(caption)
    first = [line[0].text if isinstance(line[0], Cell) else line[0] for line in shown]
    style = ' class="named"' if max(map(len, first), default=0) > _LONG_NAME else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table{style}>'
        f"<caption>{counted}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def _cell(cell: Cell | str, right: bool, first: bool) -> str:
    cell = Cell(cell) if isinstance(cell, str) else cell
    classes = " ".join(filter(None, ("n" if right else "", cell.style)))
    attributes = f' class="{classes}"' if classes else ""
    attributes += f' data-v="{cell.value:.12g}"' if cell.value is not None else ""
    text = escape(cell.text).replace("::", "::<wbr>")  # operators have long names, which may be broken there
    if first and not right:
        text = text.replace(".", ".<wbr>")  # and so have modules
    if cell.bar is None:
        return f"<td{attributes}>{text}</td>"
    return f"<td{attributes}>{_bar(cell.bar)}<span>{text}</span></td>"


def _bar(fraction: float) -> str:
    width = 60 * min(max(fraction, 0.0), 1.0)
    box = 'width="60" height="8" viewBox="0 0 60 8" preserveAspectRatio="none"'  # narrower on a phone
    return f'<svg class="bar" {box} aria-hidden="true"><rect width="{width:.1f}" height="8"/></svg>'


def prose(text: object) -> str:
    """Text in which commands stand between backquotes.

    >>> prose("`a<b` says why")
    '<code>a&lt;b</code> says why'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{prose(text)}</p>' if style else f"<p>{prose(text)}</p>"


def fold(summary: str, content: str, opened: bool = False) -> str:
    """Content that a reader opens."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{content}</details>"
