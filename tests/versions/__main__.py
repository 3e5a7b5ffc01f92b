"""Installs the wheel in every release of Python and torch that it admits, and runs its demo and a part of the tests.

``python -m tests.versions run --work DIR``   continues where it stopped
``python -m tests.versions table``            writes the outcomes to ``docs/versioning.md``

A cell downloads its torch (up to 0.9 GB), takes 2 GB in DIR and is removed at its end. Interpreters are found on the
path and among pyenv's; ``--interpreters 3.14=/path/to/python`` names others.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.versions.cells import ABSENT, FAILED, PYTHON, TORCH, Outcome, build_wheel, find_interpreter, run_cell
from tests.versions.page import write_page


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("--work", type=Path, default=Path("build/versions"), help="folder of the environments")
    parser.add_argument("--state", type=Path, default=Path("build/versions.jsonl"), help="file of the outcomes")
    parser.add_argument("--python", nargs="+", choices=PYTHON, default=list(PYTHON), metavar="RELEASE")
    parser.add_argument("--torch", nargs="+", choices=TORCH, default=list(TORCH), metavar="RELEASE")
    parser.add_argument("--interpreters", nargs="+", default=[], metavar="RELEASE=PATH")
    parser.add_argument("--again", action="store_true", help="run cells that failed once more")
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()  # steps of a cell run in folders of their own
    options.state.parent.mkdir(parents=True, exist_ok=True)
    if options.command == "run":
        _run(options)
    outcomes = read(options.state)
    if options.command == "table":
        write_page(outcomes)
    failures = [o for o in outcomes.values() if o.outcome == FAILED]
    for failure in failures:
        print(f"Python {failure.python}, torch {failure.torch}: {failure.detail}")
    print(f"versions: {len(outcomes) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def read(state: Path) -> dict[tuple[str, str], Outcome]:
    """The last outcome of every cell that ran."""
    lines = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    return {(o.python, o.torch): o for o in (Outcome(**json.loads(line)) for line in lines)}


def _run(options: argparse.Namespace) -> None:
    given = {release: Path(path) for release, _, path in (text.partition("=") for text in options.interpreters)}
    done = {cell for cell, o in read(options.state).items() if o.outcome != FAILED or not options.again}
    wheel = build_wheel(options.work / "wheel")
    for torch in options.torch:
        for release in options.python:
            interpreter = find_interpreter(release, given)
            if (release, torch) in done:
                continue
            if interpreter is None:
                print(f"Python {release} is not here: name one with --interpreters {release}=PATH", flush=True)
                continue
            outcome = run_cell(interpreter, release, torch, wheel, options.work)
            with options.state.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            counts = "" if outcome.outcome == ABSENT else f", {outcome.tests} tests"
            print(f"Python {release}, torch {torch}: {outcome.outcome}{counts}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
