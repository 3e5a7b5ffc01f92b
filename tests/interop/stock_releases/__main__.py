"""Runs programs of ours in every release of ExecuTorch that people have, and compares with our runtime.

``python -m tests.interop.stock_releases setup --environments DIR``  installs the releases
``python -m tests.interop.stock_releases run --environments DIR``    continues where it stopped
``python -m tests.interop.stock_releases table``                     writes the counts to ``docs/releases.md``

``DIR`` (or ``EDGEWRIGHT_EXECUTORCH_RELEASES``) holds the releases, and is filled on first use: 70 to 150 MB for each,
and a torch for each of the older ones (a CUDA build takes 1.8 GB, if the index has no other).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.interop.stock_releases.cases import GROUPS, Case, all_cases
from tests.interop.stock_releases.environments import TORCH, default_folder, paths
from tests.interop.stock_releases.outcomes import Record, run_case
from tests.interop.stock_releases.page import table, write_page
from tests.support.stock import StockRuntime


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.stock_releases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("setup", "run", "table"))
    parser.add_argument("--environments", type=Path, default=default_folder(), help="folder of the releases")
    parser.add_argument("--state", type=Path, default=Path("build/stock_releases.jsonl"), help="file of the outcomes")
    parser.add_argument("--releases", nargs="+", choices=TORCH, default=list(TORCH), metavar="RELEASE")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of single operators, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the share")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after the case that exceeds them")
    options = parser.parse_args(arguments)
    if options.environments is None and options.command != "table":
        parser.error("--environments DIR is needed: it holds the releases")
    if options.command == "setup":
        for release in options.releases:
            print(release, *paths(options.environments, release))
        return 0
    options.state.parent.mkdir(parents=True, exist_ok=True)
    record = Record(options.state)
    if options.command == "run":
        _run(options, record)
    else:
        write_page(record)
    print(*table(record), sep="\n")
    failures = record.failures()
    for failure in failures:
        print(f"{failure.release} {failure.group} {failure.case}: {failure.outcome} {failure.detail}")
    print(f"releases: {len(record.outcomes) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def _run(options: argparse.Namespace, record: Record) -> None:
    runtimes = {release: StockRuntime(paths(options.environments, release)) for release in options.releases}
    operators = {release: frozenset(runtime.operators()) for release, runtime in runtimes.items()}
    deadline = time.monotonic() + options.seconds
    cases = _share(all_cases(options.groups), options.share, options.seed)
    drawn = f"share {options.share}, seed {options.seed}"
    print(f"{len(cases)} programs ({drawn}) in {', '.join(options.releases)}", flush=True)
    for number, case in enumerate(cases):
        if time.monotonic() > deadline:
            print(f"stopped after {options.seconds:.0f} seconds: {number} of {len(cases)} programs ran")
            break
        missing = record.missing(case, options.releases)
        if missing:
            built = case.build()
            record.add(run_case(case, built, release, runtimes[release], operators[release]) for release in missing)
    for runtime in runtimes.values():
        runtime.close()


def _share(cases: list[Case], share: float, seed: int) -> list[Case]:
    """All networks, and a share of the rest."""
    chance = random.Random(seed)
    return [case for case in cases if case.group == "networks" or chance.random() < share]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
