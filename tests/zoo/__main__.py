"""Compiles public architectures for every kind of target.

``python -m tests.zoo run``     models the state file does not have yet, smallest first, one process each. A state file
                                that does not exist yet starts with the rows of the committed table, so that any
                                machine continues where another one stopped; with ``--anew`` it starts empty
``python -m tests.zoo table``   the committed table and its page, from the state file
``python -m tests.zoo check``   the state file beside the committed table; fails where it is worse
``python -m tests.zoo choose``  writes the list of models (needs the packages of ``requirements.txt``)
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.zoo import table as tables
from tests.zoo.campaign import Campaign, Limits, State, share
from tests.zoo.sources import LIST, choose, listed
from tests.zoo.targets import TARGETS

PACKAGES = ("torch", "torchvision", "timm", "transformers", "torchao", "numpy", "llvmlite")


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    commands = {"run": _run, "table": _table, "check": _check, "choose": _choose}
    return commands[options.command](options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("choose", help="write models.txt")
    for name in ("run", "table", "check"):
        command = commands.add_parser(name)
        command.add_argument("--state", type=Path, default=Path("zoo.state.jsonl"), help="rows, one a line")
        if name == "run":
            command.add_argument("--models", action="append", default=[], help="names or globs; module:factory")
            command.add_argument("--targets", default=",".join(TARGETS), help="names, with commas between")
            command.add_argument("--share", default="1/1", help="i/n: a part of the models, another one for each seed")
            command.add_argument("--seed", default="0", help="of the share: a number, or 'new'")
            command.add_argument("--jobs", type=int, default=1, help="models at a time")
            command.add_argument("--anew", action="store_true", help="a new state file starts empty")
            command.add_argument("--again", default="", help="statuses whose rows are run again, with commas between")
            command.add_argument("--limit-seconds", type=float, default=600.0, help="of one model, on the processor")
            command.add_argument("--limit-gigabytes", type=float, default=8.0, help="of one model")
            command.add_argument("--seconds", type=float, default=float("inf"), help="no model starts after that")
    return parser


def _run(options: argparse.Namespace) -> int:
    targets = options.targets.split(",")
    unknown = [t for t in targets if t not in TARGETS]
    if unknown:
        raise SystemExit(f"--targets: must be of {', '.join(TARGETS)}; got {unknown[0]}")
    seed = secrets.randbelow(1 << 20) if options.seed == "new" else int(options.seed)
    names = share(listed(options.models), options.share, seed)
    print(f"seed {seed}, {len(names)} models", flush=True)
    limits = Limits(options.limit_seconds, options.limit_gigabytes)
    until = time.monotonic() + options.seconds
    state = _state(options)
    campaign = Campaign(targets, state, limits, until, lambda: {"commit": commit()}, report=_print)
    campaign.run(names, options.jobs)
    return 0


def _state(options: argparse.Namespace) -> State:
    """The state file; a new one has the rows of the committed table, but for those at a limit of its machine."""
    is_new = not options.state.exists()
    state = State(options.state)
    for row in tables.read_table()["rows"] if is_new and not options.anew else ():
        if row["status"] != "limit":
            state.add(row)
    state.forget(options.again.split(","))
    return state


def _print(row: dict[str, Any]) -> None:
    if row["status"] == "ok":
        told = f"{row['coverage']:5.1f} % {row['delegates']:3} delegates {row['sqnr']:6.1f} {row['agreement']:6.1f} dB"
    else:
        told = row["message"]
    print(f"{row['model']:40} {row['target']:16} {row['status']:8} {told}", flush=True)


def commit() -> str:
    """The last commit that changed the product: what the tests do to a branch does not change the rows."""
    command = ["git", "log", "-1", "--format=%h", "--", "edgewright"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    return made.stdout.strip()


def _table(options: argparse.Namespace) -> int:
    known = set(listed())
    rows = [row for row in State(options.state).rows.values() if row["model"] in known]
    packages = {name: metadata.version(name) for name in PACKAGES}
    commits = sorted({row["commit"] for row in rows})
    head = {"date": time.strftime("%Y-%m-%d"), "commit": ", ".join(commits), "packages": packages}
    table = tables.make_table(rows, head)
    tables.write_table(table)
    tables.write_pages(table, len(known))
    print(f"{len(rows)} rows")
    return 0


def _check(options: argparse.Namespace) -> int:
    rows = State(options.state).rows.values()
    worse = list(tables.regressions(tables.read_table(), rows))
    for line in worse:
        print(line)
    print(f"{len(rows)} rows, {len(worse)} worse than the table")
    return 1 if worse else 0


def _choose(options: argparse.Namespace) -> int:
    LIST.write_text("\n".join(choose()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
