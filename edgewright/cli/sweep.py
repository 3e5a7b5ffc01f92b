"""``edgewright sweep``: many models, targets and precisions; on this machine or on a Dask cluster."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from edgewright.cli.model_options import need_torch, quiet_imports
from edgewright.console import clean, console, note, plural, rate_bar, table
from edgewright.errors import FileAccessError, UsageError
from edgewright.explore.rows import DONE, FAILED, STOPPED, Outcome, Row
from edgewright.explore.store import Store
from edgewright.explore.table import records, score_of, to_json, write_parquet
from edgewright.files import check_writable
from edgewright.units import duration, share, size

if TYPE_CHECKING:
    from edgewright.explore.sweep_file import Limits

EXAMPLES = """examples:
  edgewright sweep sweep.toml -o results/
  edgewright sweep --resume results/ --workers 4
  edgewright sweep --resume results/ --scheduler tcp://10.0.0.1:8786
  edgewright sweep --show results/ --html --parquet
"""
_STYLES = {DONE: "", FAILED: "red", STOPPED: "yellow", "missing": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = parser.add_argument
    add("file", nargs="?", metavar="sweep.toml", help="models, targets, precisions, options, data and limits")
    add("-o", "--output", metavar="results/", help="the folder of the results; rows that it has are not run again")
    add("--resume", metavar="results/", help="run the rows that are missing, without the TOML file")
    add("--show", metavar="results/", help="show the results, also while the sweep runs")
    add("--html", nargs="?", const="", metavar="FILE", help="with --show: write one page (default: in the folder)")
    add("--parquet", nargs="?", const="", metavar="FILE", help="with --show: write a table for pandas and others")
    add("--json", action="store_true", help="print the rows as JSON")
    add("--workers", type=int, metavar="N", help="processes on this machine (default: one per core)")
    add("--scheduler", metavar="ADDRESS", help="run on the Dask cluster of this scheduler")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    if args.show:
        with Store(args.show) as store:
            _show(args, store)
        return 0
    with Store(args.output or args.resume, create=bool(args.output)) as store:
        store.lock()
        _run(args, store)
        if not args.quiet or args.json:
            _show(args, store)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    ways = [name for name in ("file", "resume", "show") if getattr(args, name)]
    if len(ways) != 1:
        rule = "takes one of: a TOML file, --resume FOLDER, --show FOLDER"
        raise UsageError("sweep", rule, value=" and ".join(ways) or "nothing")
    if bool(args.file) != bool(args.output):
        raise UsageError("-o", "goes with a TOML file: edgewright sweep sweep.toml -o results/")
    for option in ("html", "parquet"):
        path = getattr(args, option)
        if path is not None and not args.show:
            raise UsageError(f"--{option}", "goes with --show")
        if path:
            check_writable(path)
    if args.workers is not None and args.workers < 1:
        raise UsageError("--workers", "must be 1 or more", value=args.workers)
    if args.workers is not None and args.scheduler:
        raise UsageError("--workers", "is for this machine: a scheduler has workers of its own")
    if args.output:
        check_writable(args.output, folder=True)


# ---------------------------------------------------------------------------------------------------------------- run


def _run(args: argparse.Namespace, store: Store) -> None:
    from edgewright.explore.cluster import connect
    from edgewright.explore.runner import Runner

    with quiet_imports():
        need_torch()
        limits = _plan(args, store)
    rows = store.missing()
    total = len(store.plan())
    if not rows:
        return
    with connect(args.scheduler, args.workers, limits.memory) as cluster:
        if not args.quiet:
            note(f"{plural(len(rows), 'row')} to run of {total}; dashboard: {cluster.client.dashboard_link}")
        with rate_bar("sweep", len(rows), quiet=args.quiet) as step:
            counts = dict.fromkeys((DONE, FAILED, STOPPED), 0)

            def finished(row: Row, outcome: Outcome) -> None:
                counts[outcome.status] += 1
                bad = ", ".join(f"{counts[s]} {s}" for s in (FAILED, STOPPED) if counts[s])
                step.describe(f"sweep ({bad})" if bad else "sweep")
                step()

            Runner(cluster, store, limits, finished, store.meta("imports").split()).run(rows)


def _plan(args: argparse.Namespace, store: Store) -> Limits:
    """Make the rows of a TOML file; or read its limits again, to resume."""
    from edgewright.explore.sweep_file import SweepFile

    if os.getcwd() not in sys.path:  # models and metrics are looked up there, by workers of this machine as well
        sys.path.insert(0, os.getcwd())
    if not args.file:
        text = store.meta("sweep")
        if not text:  # stopped while models were loaded, or of a search
            remedy = f"Start the sweep again: edgewright sweep sweep.toml -o {args.resume}"
            raise FileAccessError(args.resume, "must be the folder of a sweep whose rows are stored", remedy=remedy)
        return SweepFile(text, f"{args.resume}: the sweep").limits
    from edgewright.explore.plan import make_plan

    file = SweepFile.read(args.file)
    make_plan(file, store, args.quiet, args.imports)
    return file.limits


# --------------------------------------------------------------------------------------------------------------- show


def _show(args: argparse.Namespace, store: Store) -> None:
    lines = records(store)
    written = []
    if args.html is not None:
        from edgewright.explore.page import write_page

        path = args.html or os.fspath(store.folder / "sweep.html")
        written.append((path, write_page(store, lines, path)))
    if args.parquet is not None:
        path = args.parquet or os.fspath(store.folder / "sweep.parquet")
        written.append((path, write_parquet(lines, path)))
    if args.json:
        print(to_json(lines))
    elif not args.quiet:
        _print(lines)
        for path, count in written:
            console().print(f"wrote {clean(path)} ({size(count)})", style="green", soft_wrap=True)


def _print(lines: Sequence[Mapping[str, Any]]) -> None:
    out = console()
    metric = any(line["metric"] is not None for line in lines)
    options = [name for name in ("integer_io", "simulate", "check", "runtime") if any(name in line for line in lines)]
    heads = ("", "model", "target", "precision", *options, ">delegated", ">file", ">RAM", ">time",
             ">metric" if metric else ">SQNR", "status")  # fmt: skip
    rows = [[Text(str(cell), style=_STYLES[line["status"]]) for cell in _cells(line, options)] for line in lines]
    out.print(table("", heads, rows, flexible="status", tight=True))
    count = {status: sum(line["status"] == status for line in lines) for status in _STYLES}
    out.print(f"{count[DONE]} done, {count[FAILED]} failed, {count[STOPPED]} stopped, {count['missing']} missing")
    bases = sorted({line["time_basis"] for line in lines if line["milliseconds"] is not None})
    if any(line["best"] for line in lines):
        out.print("*: no comparable row is smaller, faster and better in the score", style="dim", soft_wrap=True)
    if bases:
        out.print(f"time: {'; '.join(map(clean, bases))}", style="dim", soft_wrap=True)
    _print_errors(lines)


def _cells(line: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    score, time = score_of(line), line["milliseconds"]
    score_text = "" if score is None else f"{score:.4g}" if line["metric"] is not None else f"{score:.1f}"
    status = line["status"] if line["attempts"] < 2 else f"{line['status']}, {line['attempts']} attempts"
    return [
        "*" if line["best"] else "", clean(line["model"]), line["target"], clean(line["precision"]),
        *(str(line.get(name, "")).lower() for name in options),
        "" if line["delegated_macs"] is None else share(line["delegated_macs"]),
        *("" if line[name] is None else size(line[name]) for name in ("file_bytes", "planned_bytes")),
        "" if time is None else duration(time / 1e3), score_text, status,
    ]  # fmt: skip


def _print_errors(lines: Sequence[Mapping[str, Any]]) -> None:
    """Every error once, with the rows that have it."""
    rows: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line["error"]:
            name = f"{line['model']}, {line['target']}, {line['precision']}"
            rows.setdefault((line["error"], line["traceback"]), []).append(name)
    out = console()
    for (error, traceback), names in rows.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        out.print(f"\n{clean('; '.join(names[:3]))}{more}:", style="bold", soft_wrap=True)
        for text in (*error.splitlines(), *traceback.splitlines()):
            out.print(f"  {clean(text)}", style="red", soft_wrap=True)
