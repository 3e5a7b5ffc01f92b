"""The committed table: what came of every model and target, the page about it, and what counts as worse."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.zoo.judge import DEFECTS
from tests.zoo.reduced import MARK
from tests.zoo.targets import TARGETS

Row = dict[str, Any]
TABLE = Path(__file__).with_name("table.json")
PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
SOUNDNESS = PAGE.with_name("soundness.md")
BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"
STATUSES = ("ok", "refused", "export", "model", "limit", "wrong", "error", "crash")
_COLUMNS = ("model", "target", "status", "coverage", "operators", "delegates", "bytes", "sqnr", "agreement", "check",
            "input", "parameters", "error", "message", "where", "commit")  # fmt: skip
SQNR_DB = 1.0  # what a quantized model may lose between runs: other orders of sums, other ties
_MEASURED = ("coverage", "operators", "delegates", "bytes", "sqnr", "agreement")


def make_table(rows: Iterable[Row], head: Mapping[str, Any]) -> dict[str, Any]:
    kept = [{c: row[c] for c in _COLUMNS if c in row} for row in rows]
    order = list(TARGETS)
    kept.sort(key=lambda row: (row["model"], order.index(row["target"])))
    return {**head, "rows": kept}


def write_table(table: Mapping[str, Any], path: Path = TABLE) -> None:
    """One row a line, so that differences can be read."""
    head = {k: v for k, v in table.items() if k != "rows"}
    lines = ",\n".join(json.dumps(row) for row in table["rows"])
    path.write_text(json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n')


def read_table(path: Path = TABLE) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(path.read_text())
    return table


def problems(table: Mapping[str, Any]) -> Iterator[str]:
    """What does not belong into a table; nothing if it is well formed."""
    for key in ("date", "commit", "packages"):
        if not table.get(key):
            yield f"{key}: is missing"
    rows = table["rows"]
    keys = [(row.get("model"), row.get("target")) for row in rows]
    yield from (f"{key}: stands {count} times" for key, count in Counter(keys).items() if count > 1)
    for row in rows:
        name = f"{row.get('model')} for {row.get('target')}"
        if row.get("target") not in TARGETS or row.get("status") not in STATUSES:
            yield f"{name}: target or status is not known: {row.get('status')}"
        yield from (f"{name}: {key} is not known" for key in row if key not in _COLUMNS)
        wanted = _MEASURED if row.get("status") == "ok" else ("message",)
        yield from (f"{name}: {key} is missing" for key in wanted if key not in row)


def regressions(old: Mapping[str, Any], new: Iterable[Row]) -> Iterator[str]:
    """Where a new run is worse than the table. Models that only one of them has are not compared."""
    before = {(row["model"], row["target"]): row for row in old["rows"]}
    for row in new:
        known = before.get((row["model"], row["target"]))
        name = f"{row['model']} for {row['target']}"
        if row["status"] in DEFECTS and (known is None or known["status"] not in DEFECTS):
            yield f"{name}: {row['status']}: {row['message']}"
        elif known is not None and known["status"] == "ok" and row["status"] != "limit":  # a slower machine
            yield from (f"{name}: {what}" for what in _worse(known, row))


def _worse(old: Row, new: Row) -> Iterator[str]:
    if new["status"] != "ok":
        yield f"was ok, is {new['status']}: {new['message']}"
        return
    for key in ("coverage", "operators"):
        if new[key] < old[key] - 0.01:
            yield f"{key} fell from {old[key]:g} % to {new[key]:g} %"
    if new["delegates"] > old["delegates"]:
        yield f"{old['delegates']} delegates became {new['delegates']}"
    if new["sqnr"] < old["sqnr"] - SQNR_DB and new["sqnr"] < 100:  # floats: above, it is the last bit
        yield f"SQNR fell from {old['sqnr']:g} dB to {new['sqnr']:g} dB"


def page(table: Mapping[str, Any], total: int) -> str:
    """The page of the docs."""
    return "\n".join([*_introduction(table, total), *_counts(table), *_reduced(table), *_groups(table)]) + "\n"


def write_pages(table: Mapping[str, Any], total: int) -> None:
    """The page, and the counts in the page about soundness."""
    PAGE.write_text(page(table, total))
    text = SOUNDNESS.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    SOUNDNESS.write_text(f"{text[:start]}\n{section(table, total)}\n{text[end:]}")


def section(table: Mapping[str, Any], total: int) -> str:
    """What the page about soundness says of the zoo."""
    return "\n".join([_extent(table, total), "", *_counts(table)]).strip()


def _extent(table: Mapping[str, Any], total: int) -> str:
    rows = table["rows"]
    models = len({row["model"] for row in rows})
    packages = ", ".join(f"{name} {version}" for name, version in table["packages"].items())
    partial = f"**partial**: {models} of {total} models, not all of them for every target"
    state = "all of it" if len(rows) == total * len(TARGETS) else partial
    return f"This table: {state}; {len(rows)} rows, {table['date']}, commit `{table['commit']}`, {packages}."


def _introduction(table: Mapping[str, Any], total: int) -> Iterator[str]:
    yield "# Tested architectures\n"
    yield "Public architectures with random weights and small inputs, compiled for eight targets. Every file runs on"
    yield "this machine and is compared with the graph it was lowered from. `python -m tests.zoo table` writes this"
    yield "page and `tests/zoo/table.json`; `python -m tests.zoo check` compares a new run with it.\n"
    yield f"{_extent(table, total)}\n"
    yield "`sm8550`, `e9955` and `imxrt700` run as host twins, the graphs passed to the vendors' compilers;"
    yield "`ethos-u85-256` runs as its TOSA graph. Random weights say nothing about accuracy after training: the SQNR"
    yield "serves to compare releases.\n"


def _counts(table: Mapping[str, Any]) -> Iterator[str]:
    yield "| target | ok | coverage | delegates | SQNR, dB | rejected | not exported | limit | defects |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for target in TARGETS:
        rows = [row for row in table["rows"] if row["target"] == target]
        ok = [row for row in rows if row["status"] == "ok"]
        count = Counter(row["status"] for row in rows)
        defects, uncaptured = sum(count[s] for s in DEFECTS), count["export"] + count["model"]
        yield (
            f"| `{target}` | {len(ok)} | {_median(ok, 'coverage')} % | {_median(ok, 'delegates')} |"
            f" {_median(ok, 'sqnr')} | {count['refused']} | {uncaptured} | {count['limit']} | {defects} |"
        )
    yield "\nCoverage (of multiply-accumulates), delegates and SQNR are medians over the models that are ok.\n"


def _reduced(table: Mapping[str, Any]) -> Iterator[str]:
    """Networks that ran with fewer of their equal blocks, and for which targets the complete ones did not."""
    reduced = {row["model"]: row["input"] for row in table["rows"] if MARK in row["model"] and "input" in row}
    if not reduced:
        return
    yield "## With fewer of their equal blocks\n"
    yield "Networks of 400 million parameters and more need more time or memory than a run has. Of blocks that follow"
    yield "each other and are equal, two are left: every operator and width is compiled, run and compared.\n"
    for model, note in reduced.items():
        complete = model.partition(MARK)[0]
        limits = [r["target"] for r in table["rows"] if r["model"] == complete and r["status"] == "limit"]
        yield f"- {model} ({note}); the complete network is at the limit for {', '.join(limits) or 'no target'}"
    yield ""


def _median(rows: list[Row], key: str) -> str:
    values = sorted(row[key] for row in rows)
    return f"{values[len(values) // 2]:g}" if values else "-"


_TITLES = {
    "refused": "Typed rejections", "export": "Not captured by torch.export", "model": "Not run in eager torch",
    "limit": "At the time or memory limit", "wrong": "Wrong numbers", "error": "Untyped errors", "crash": "Crashes",
}  # fmt: skip


def _groups(table: Mapping[str, Any]) -> Iterator[str]:
    for status, title in _TITLES.items():
        groups: dict[str, list[Row]] = {}
        for row in table["rows"]:
            if row["status"] == status:
                groups.setdefault(_generic(row["message"]), []).append(row)
        yield f"## {title}\n"
        if not groups:
            yield "None.\n"
        for message, rows in sorted(groups.items(), key=lambda item: -len(item[1])):
            yield f"- {message}  "
            yield f"  {_who(rows)}"
        if groups:
            yield ""


def _generic(message: str) -> str:
    return message.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").strip()


def _who(rows: list[Row]) -> str:
    models: dict[str, list[str]] = {}
    for row in rows:
        models.setdefault(row["model"], []).append(row["target"])
    told = [f"{m} ({'all targets' if len(t) == len(TARGETS) else ', '.join(t)})" for m, t in models.items()]
    return "; ".join(told)
