"""Fuzzes everything that reads a file.

``python -m tests.fuzz --seconds 300 --seed new``     all targets for a while, with other mutations each time
``python -m tests.fuzz --all``                        10,000,000 executions; goes on where ``state.json`` stopped
``python -m tests.fuzz table``                        writes the table of ``docs/soundness.md``
``python -m tests.fuzz merge FILE...``                adds the states of other processes or machines to ``state.json``
``python -m tests.fuzz replay diff-qnn FILE [SEED]``  executes a file again; SEED is the one of a graph's inputs
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.campaign import STATE, State, next_target, now, run_next
from tests.fuzz.table import write_table
from tests.fuzz.targets import TARGETS

_SLICE_SECONDS = 90.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="until every target has reached its goal")
    parser.add_argument("--seconds", type=float, default=None, help="how long (default: 60, or no limit with --all)")
    parser.add_argument("--seed", default="new", help="a number, or 'new' for another one each time")
    parser.add_argument("--targets", default="", help=f"some of {','.join(TARGETS)}")
    parser.add_argument("--state", type=Path, default=None, help=f"where counts are kept (with --all: {STATE.name})")
    commands = {"table": _table, "merge": _merge, "replay": _replay}
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    return _run(parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    names = options.targets.split(",") if options.targets else list(TARGETS)
    seed = secrets.randbelow(1 << 24) if options.seed == "new" else int(options.seed)
    path = options.state or (STATE if options.all else None)
    state = State.load(path) if path and path.exists() else State(seed, started=now())
    print(f"seed {state.seed}", flush=True)
    seconds = options.seconds if options.seconds else 1e9 if options.all else 60.0
    until, found = time.monotonic() + seconds, state.found
    share = _SLICE_SECONDS if options.all else seconds / len(names)
    while (left := until - time.monotonic()) > 0 and (target := next_target(state, names)):
        done = run_next(state, target, min(share, left))
        for result in done.findings:
            print(f"FOUND {target.name}: {result.category}: {result.reason}", flush=True)
        print(f"{target.name}: {state.of(target.name).executions} ({state.executions} in all)", flush=True)
        if path:
            state.save(path)
    return int(state.found > found)


def _table(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz table")
    parser.add_argument("--state", type=Path, default=STATE)
    write_table(State.load(parser.parse_args(arguments).state))
    return 0


def _merge(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz merge")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--state", type=Path, default=STATE)
    options = parser.parse_args(arguments)
    state = State.load(options.state)
    for file in options.files:
        state.merge(State.load(file))
    state.save(options.state)
    return 0


def _replay(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz replay")
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("file", type=Path)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    options = parser.parse_args(arguments)
    result = TARGETS[options.target].execute(options.file.read_bytes(), options.seed)
    print(result.category or "no finding", result.reason or result.features)
    return int(bool(result.category))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
