"""The results of all applications: ``table.json``, and the tables of ``docs/applications`` that are made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from edgewright.units import duration, share, size
from examples.applications.application import Application, Row

TABLE = Path(__file__).with_name("table.json")
DOCS = Path(__file__).parents[2] / "docs" / "applications"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def read_rows(path: Path = TABLE) -> list[Row]:
    """The rows of a file, one a line; of equal keys the last one."""
    if not path.exists():
        return []
    lines = [line.rstrip(",") for line in path.read_text().splitlines() if line.startswith("{")]
    rows = (Row(**json.loads(line)) for line in lines)
    return list({row.key: row for row in rows}.values())


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row.to_dict()) + "\n" for row in rows)


def write_table(rows: Iterable[Row], path: Path = TABLE) -> None:
    """One row a line, so that differences can be read. Of equal keys the last one is kept."""
    merged = sorted({row.key: row for row in rows}.values(), key=lambda row: row.key)
    path.write_text("[\n" + ",\n".join(json.dumps(row.to_dict()) for row in merged) + "\n]\n")


def describe(row: Row, figures: Mapping[str, str]) -> str:
    """A row in a line."""
    name = f"{row.application} {row.part} {row.target} {row.precision}"
    if row.rejected:
        return f"{name}: {row.rejected}"
    accuracy = ", ".join(f"{key} {row.figures[key]:{form}}" for key, form in figures.items())
    return f"{name}: {accuracy}; {share(row.coverage)} delegated, {size(row.bytes)}; {row.check}"


def write_pages(applications: Mapping[str, Application]) -> None:
    rows = read_rows()
    _replace(DOCS / "index.md", overview(rows, applications))
    for name, application in applications.items():
        own = [row for row in rows if row.application == name]
        _replace(DOCS / f"{name}.md", results(own, application))


def overview(rows: Sequence[Row], applications: Mapping[str, Application]) -> str:
    """A line for each application: its figure of ``headline``, of the best precision for each kind of device."""
    kinds = ("xnnpack", "ethos-u", "sm8550", "e9955", "imxrt700")
    lines = [["application", "figure", "float", *kinds], ["---", "---", *["---:"] * (len(kinds) + 1)]]
    for name, application in applications.items():
        own = [row for row in rows if row.application == name and row.figures and row.precision != "float"]
        if not own:
            continue
        figure, form = application.headline, application.figures[application.headline]
        best = max if application.higher_is_better else min
        cells = []
        for kind in kinds:
            there = [row for row in own if row.target.startswith(kind)]
            row = best(there, key=lambda row: row.figures[figure]) if there else None
            cells.append("" if row is None else f"{row.figures[figure]:{form}} `{row.precision}`")
        lines.append([f"[{name}]({name}.md)", figure, f"{own[0].float_figures[figure]:{form}}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _replace(page: Path, text: str) -> None:
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def results(rows: Sequence[Row], application: Application) -> str:
    """The table of an application: a line for the original, and one for each target and precision."""
    figures = application.figures
    order = [(target, precision) for target, precisions in application.targets.items() for precision in precisions]
    rows = sorted(rows, key=lambda row: order.index((row.target, row.precision)))
    several = len({row.part for row in rows}) > 1
    heads = ["target", "precision", *(["program"] if several else []), *figures]
    heads += ["SQNR, dB", "delegated", "file", "RAM", "SRAM", "here", "there"]
    lines = [heads, ["---"] * (len(heads) - len(figures) - 7) + ["---:"] * (len(figures) + 7)]
    float_figures = next((row.float_figures for row in rows if row.float_figures), {})
    first = [
        "torch",
        "float",
        *([""] if several else []),
        *(_cell(float_figures, f, form) for f, form in figures.items()),
    ]
    lines.append([*first, *[""] * (len(heads) - len(first))])
    notes = []
    for row in rows:
        line = [f"`{row.target}`", row.precision, *([row.part] if several else [])]
        if row.rejected:
            notes.append(f"- `{row.target}`, {row.precision}{f', {row.part}' if several else ''}: {row.rejected}")
            line += ["rejected"] + [""] * (len(heads) - len(line) - 1)
        else:
            line += [_cell(row.figures, f, form) for f, form in figures.items()] + _measures(row)
        lines.append(line)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join(filter(None, [table, "\n".join(notes), _basis(rows)]))


def _cell(figures: Mapping[str, float], name: str, form: str) -> str:
    return f"{figures[name]:{form}}" if name in figures else ""


def _measures(row: Row) -> list[str]:
    return [
        "" if row.sqnr is None else f"{row.sqnr:.1f}",
        share(row.coverage),
        size(row.bytes),
        size(row.planned_bytes),
        "" if row.sram is None else size(row.sram),
        "" if row.milliseconds is None else duration(row.milliseconds / 1e3),
        _estimate(row),
    ]


def _estimate(row: Row) -> str:
    if row.estimate is None:
        return ""
    least, most = row.estimate
    return duration(least / 1e3) if least == most else f"{duration(least / 1e3)} to {duration(most / 1e3)}"


def _basis(rows: Sequence[Row]) -> str:
    bases: dict[str, list[str]] = {}
    for row in rows:
        if row.basis and f"`{row.target}`" not in bases.setdefault(row.basis, []):
            bases[row.basis].append(f"`{row.target}`")
    there = "; ".join(f"{', '.join(names)} {basis}" for basis, names in bases.items())
    estimates = f"There: {there}. " if there else ""
    dates = sorted({row.date for row in rows})
    commits = ", ".join(f"`{c}`" for c in sorted({row.commit for row in rows}))
    return f"{estimates}Measured {' to '.join(dict.fromkeys([dates[0], dates[-1]]))} at {commits}." if rows else ""
