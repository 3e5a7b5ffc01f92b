"""Runs what the default test run leaves out.

``python -m tests.nightly --seconds 1800 --seed new``   a share of everything, another one for each seed
``python -m tests.nightly --all --state build/nightly`` everything; continues where it stopped
``python -m tests.nightly table --state build/nightly`` the table of slow tests in ``docs/soundness.md``

Slow tests take half of the time of a share; random compositions (``tests.compose``) and fuzzing (``tests.fuzz``) the
other half, side by side. With ``--all``, slow tests start with the files that the committed table lacks
(``slow_table.py``); ``--anew`` runs all of them.
The zoo (``tests.zoo``) needs an environment of its own (``tests/zoo/setup.sh``): ``--zoo DIR`` gives it. ExecuTorch's
releases (``tests.interop.stock_releases``) and the releases of Python and torch (``tests.versions``) download several
GB: ``--releases DIR`` and ``--versions DIR`` run them, and keep what they install there.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.compose.campaign import commit
from tests.nightly.slow_table import Row, missing, read_rows, write_page, write_rows
from tests.nightly.slow_tests import ROOT, SlowTests, slow_files


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--all", action="store_true", help="everything, however long it takes")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of a share")
    parser.add_argument("--seed", default="new", help="of a share: a number, or 'new'")
    parser.add_argument("--state", type=Path, default=Path("build/nightly"), help="folder of the outcomes")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--anew", action="store_true", help="with --all: also files that the table has")
    parser.add_argument("--zoo", type=Path, default=None, help="the zoo's virtual environment")
    parser.add_argument("--releases", type=Path, default=None, help="with --all: folder of ExecuTorch's releases")
    parser.add_argument(
        "--versions", type=Path, default=None, help="with --all: folder of releases of Python and torch"
    )
    options = parser.parse_args(arguments)
    options.state.mkdir(parents=True, exist_ok=True)
    if options.command == "table":
        return _write_table(options.state)
    return _run_all(options) if options.all else _run_share(options)


def _run_share(options: argparse.Namespace) -> int:
    seed = secrets.randbelow(1 << 30) if options.seed == "new" else int(options.seed)
    print(f"seed {seed}", flush=True)
    files = slow_files()
    # A minute a file at the most: a share touches many files, instead of all of two.
    slow = SlowTests(options.state / f"slow-{seed}", seed, time.monotonic() + options.seconds / 2, slice_seconds=60)
    good = slow.run(list(files), options.jobs)
    for test in slow.failures(list(files)):
        print(f"FAILED {test}")
    arguments = ("--seconds", f"{options.seconds / 2:.0f}", "--seed", str(seed))
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda name: _module(name, *arguments), ("tests.compose", "tests.fuzz")))
    if options.zoo is not None:
        state = options.state / f"zoo-{seed}.jsonl"
        quarter = f"{options.seconds / 4:.0f}"
        share = ("--share", "1/40", "--seed", str(seed), "--seconds", quarter, "--limit-seconds", quarter)
        codes.append(_zoo(options.zoo, "run", *share, "--jobs", str(options.jobs), "--anew", "--state", state))
        codes.append(_zoo(options.zoo, "check", "--state", state))
    print(f"seed {seed}: {'good' if good and not any(codes) else 'FAILED'}")
    return 0 if good and not any(codes) else 1


def _run_all(options: argparse.Namespace) -> int:
    files = slow_files()
    slow = SlowTests(options.state / "slow")
    good = slow.run(list(files) if options.anew else missing(files, read_rows()), options.jobs)
    for test in slow.failures(list(files)):
        print(f"FAILED {test}")
    _write_table(options.state)
    codes = [
        _module("tests.compose", "--all", "--state", str(options.state / "compose.json")),
        _module("tests.fuzz", "--all"),  # its state is in the repository
        _measure_branches(),
    ]
    if options.zoo is not None:
        state = options.state / "zoo.jsonl"
        codes += [_zoo(options.zoo, "run", "--anew", "--state", state), _zoo(options.zoo, "check", "--state", state)]
    if options.releases is not None:
        for command in ("setup", "run", "table"):
            codes.append(_module("tests.interop.stock_releases", command, "--environments", str(options.releases)))
    if options.versions is not None:
        for command in ("run", "table"):
            codes.append(_module("tests.versions", command, "--work", str(options.versions)))
    return 0 if good and not any(codes) else 1


def _measure_branches() -> int:
    """The commands of ``SECURITY.md``: every branch of the readers and of the runtime's checks is executed."""
    section = (ROOT / "SECURITY.md").read_text().split("pip install coverage\n")[1].split("```")[0]
    commands = section.replace("\\\n", "").splitlines()
    return max(_module(*command.split()) for command in commands)


def _module(name: str, *arguments: str) -> int:
    print(f"+ python -m {name} {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", name, *arguments], cwd=ROOT, check=False).returncode


def _zoo(environment: Path, *arguments: str | Path) -> int:
    words = [str(a) for a in arguments]
    print(f"+ python -m tests.zoo {' '.join(words)}", flush=True)
    python = environment.resolve() / "bin" / "python"
    return subprocess.run([str(python), "-m", "tests.zoo", *words], cwd=ROOT, check=False).returncode


def _write_table(state: Path) -> int:
    """Add the files that are finished to the committed table, and write its page."""
    files = slow_files()
    slow, rows = SlowTests(state / "slow"), read_rows()
    for file, outcomes in slow.complete(files).items():
        failed = tuple(sorted(test for test, outcome in outcomes.items() if outcome == "failed"))
        passed, skipped = (sum(o == kind for o in outcomes.values()) for kind in ("passed", "skipped"))
        rows[file] = Row(files[file], passed, skipped, failed, commit(), time.strftime("%Y-%m-%d"))
    rows = {file: row for file, row in rows.items() if file in files}
    write_rows(rows)
    write_page(files, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
