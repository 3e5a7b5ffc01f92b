"""``docs/releases.md``: the counts of a complete run."""

from __future__ import annotations

import time
from pathlib import Path

from tests.interop.stock_releases.cases import GROUPS
from tests.interop.stock_releases.environments import TORCH
from tests.interop.stock_releases.outcomes import CRASHES, DIFFERS, EQUAL, KNOWN, NEWER, REFUSED, Record

PAGE = Path(__file__).parents[3] / "docs" / "releases.md"
BEGIN, END = "<!-- releases: begin -->", "<!-- releases: end -->"
_TITLES = {"kernels": "kernels", "xnnpack": "XNNPACK", "networks": "networks"}


def write_page(record: Record) -> None:
    """Replace what is between the page's markers."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    lines = [f"{time.strftime('%Y-%m-%d')}, commit {', '.join(record.commits())}.", "", *table(record)]
    PAGE.write_text("\n".join([f"{head}{BEGIN}", *lines, f"{END}{rest.split(END)[1]}"]))


def table(record: Record) -> list[str]:
    columns = (EQUAL, NEWER, *(KNOWN + kind for kind in (REFUSED, DIFFERS, CRASHES)), REFUSED, DIFFERS, CRASHES)
    lines = [f"| release | programs | {' | '.join(columns)} |", f"|---|---|{'---:|' * len(columns)}"]
    for release in TORCH:
        for group in GROUPS:
            counts = record.counts(release, group)
            if counts:
                cells = [release, _TITLES[group], *(f"{counts[column]:,}" for column in columns)]
                lines.append(f"| {' | '.join(cells)} |")
    return lines
