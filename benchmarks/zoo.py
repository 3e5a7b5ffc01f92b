"""No network slower than the best peer? All networks of ``peers/networks.py``, beside the engines of ``engine.py``.

    python benchmarks/zoo.py prepare    # every engine's file of every network
    python benchmarks/zoo.py run        # what is not measured yet, one JSON line a cell
    python benchmarks/zoo.py table      # the geometric mean, the cells below 1, and docs/engine-zoo.md

Each command continues where it stopped. A cell is one network in one precision with one or two threads; its figure is
the time of the fastest peer over that of Edgewright. Times are the least of interleaved rounds, as in ``engine.py``,
which also says where engines are looked for. A peer whose own tools cannot make or run a network is listed with the
reason.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import engine
import networks
from prepare import SUFFIX

HERE = Path(__file__).parent
RESULTS = HERE / "zoo_results.jsonl"
PAGE = HERE.parent / "docs" / "engine-zoo.md"
SECONDS_TO_PREPARE = 1200
Cell = tuple[str, str, int]


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    for threads in args.threads or (1, 2):
        for name, entry in networks.SUITE.items():
            for precision in entry.precisions:
                wanted = not args.network or name in args.network
                if wanted and (not args.precision or precision in args.precision):
                    yield name, precision, threads


def peers(args: argparse.Namespace) -> dict[str, str]:
    found = engine.interpreters()
    for name in sorted(set(engine.MODULES) - set(found)):
        print(f"{name} is not installed, and not measured")
    return {name: python for name, python in found.items() if not args.only or name in args.only}


def prepare(args: argparse.Namespace) -> None:
    for network, precision in dict.fromkeys(cell[:2] for cell in cells(args)):
        if not _expected(args.folder, network).exists():
            np.save(_expected(args.folder, network), engine.reference(network, args.folder))
        for name, python in peers(args).items():
            path = _file(args.folder, network, precision, name)
            if not path.exists() and not _failure(path).exists():
                start = time.monotonic()
                _prepare(name, python, network, precision, path)
                outcome = "failed" if _failure(path).exists() else f"{time.monotonic() - start:.0f} s"
                print(network, precision, name, outcome, flush=True)


def _expected(folder: Path, network: str) -> Path:
    """The float network's output."""
    return folder / f"{network}.expected.npy"


def _file(folder: Path, network: str, precision: str, name: str) -> Path:
    return folder / f"{network}.{precision}.{name}{SUFFIX[name]}"


def _failure(path: Path) -> Path:
    """Where the reason is kept why an engine has no file."""
    return path.with_suffix(".failed")


def _prepare(name: str, python: str, network: str, precision: str, path: Path) -> None:
    command = [python, str(engine.PEERS / "prepare.py"), name, network, precision, str(path.parent)]
    with open(path.with_suffix(".log"), "w") as log:
        try:
            subprocess.run(command, stdout=log, stderr=log, check=True, timeout=SECONDS_TO_PREPARE)
        except subprocess.TimeoutExpired:
            reason = f"not ready after {SECONDS_TO_PREPARE} seconds"
        except subprocess.CalledProcessError:
            lines = Path(log.name).read_text(errors="replace").strip().splitlines()
            reason = lines[-1][:200] if lines else "no message"
        else:
            return
    path.unlink(missing_ok=True)
    _failure(path).write_text(reason)


def run(args: argparse.Namespace) -> None:
    end = time.monotonic() + args.seconds
    measured = {(r["network"], r["precision"], r["threads"]) for r in _rows(args.results)}
    pythons = peers(args)
    for cell in cells(args):
        if cell in measured and not args.again:
            continue
        if time.monotonic() > end:
            print("time is over; the same command continues")
            return
        row = _measure(cell, pythons, args)
        if row is not None:
            with open(args.results, "a") as out:
                out.write(json.dumps(row) + "\n")
            print(_summary(row), flush=True)


def _measure(cell: Cell, pythons: dict[str, str], args: argparse.Namespace) -> dict[str, Any] | None:
    network, precision, threads = cell
    files = {name: _file(args.folder, network, precision, name) for name in pythons}
    missing = [name for name, path in files.items() if not path.exists() and not _failure(path).exists()]
    if missing:
        print(network, precision, "is not prepared for", ", ".join(missing))
        return None
    expected = np.load(_expected(args.folder, network))
    engines, failed = [], {}
    for name, path in files.items():
        if _failure(path).exists():
            failed[name] = _failure(path).read_text()
            continue
        try:
            engines.append(engine.start(name, pythons[name], path, args.folder / f"{network}.npz", threads))
        except RuntimeError:
            lines = path.with_suffix(".serve.log").read_text(errors="replace").strip().splitlines()
            failed[name] = lines[-1][:200] if lines else "no message"
    engine.measure_in_turns(engines, args.rounds, f"{network} {precision} {threads}")
    engine.stop(engines)
    return {
        "network": network, "precision": precision, "threads": threads,
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}", "commit": _commit(),
        "load": round(os.getloadavg()[0], 1),
        "ms": {e.name: round(min(e.times), 4) for e in engines},
        "first_ms": {e.name: round(e.facts["load_ms"] + e.facts["first_ms"], 1) for e in engines},
        "peak_mb": {e.name: round(e.peak_mb) for e in engines},
        "agreement_db": {e.name: _agreement(expected, e.facts["logits"]) for e in engines},
        "versions": {e.name: e.facts["version"] for e in engines},
        "failed": failed,
    }  # fmt: skip


def _agreement(expected: np.ndarray, outputs: list[float]) -> float | None:
    """Decibels from the float network, None where an engine returns another number of elements."""
    error = np.asarray(outputs) - expected if len(outputs) == len(expected) else np.asarray([np.nan])
    decibels = 10 * np.log10((expected**2).sum() / max(float((error**2).sum()), 1e-30))
    return round(float(decibels), 1) if np.isfinite(decibels) else None


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _rows(path: Path) -> list[dict[str, Any]]:
    """The newest row of every cell."""
    lines = path.read_text().splitlines() if path.exists() else []
    newest = {(r["network"], r["precision"], r["threads"]): r for r in map(json.loads, lines)}
    return list(newest.values())


def ratio(row: dict[str, Any]) -> float | None:
    """Time of the fastest peer over Edgewright's."""
    others = [ms for name, ms in row["ms"].items() if name != "edgewright"]
    return min(others) / row["ms"]["edgewright"] if others and "edgewright" in row["ms"] else None


def _summary(row: dict[str, Any]) -> str:
    times = ", ".join(f"{name} {ms:.3f}" for name, ms in sorted(row["ms"].items(), key=lambda item: item[1]))
    share = ratio(row)
    title = f"{row['network']} {row['precision']} {row['threads']}"
    return f"{title}: {'-' if share is None else f'{share:.2f}'} ({times} ms; load {row['load']})"


def table(args: argparse.Namespace) -> None:
    rows = _rows(args.results)
    ratios = {(r["network"], r["precision"], r["threads"]): s for r in rows if (s := ratio(r)) is not None}
    for threads in (1, 2):
        for precision in ("fp32", "int8", "int4"):
            found = [s for (_, p, t), s in ratios.items() if (p, t) == (precision, threads)]
            if found:
                print(f"{precision}, {threads} thread(s): {_mean(found):.2f} over {len(found)} networks")
    for cell, share in sorted(ratios.items(), key=lambda item: item[1]):
        if share < 1:
            print(f"{' '.join(map(str, cell))}: {share:.2f}")
    PAGE.write_text(_page(rows))


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


_TOTAL = 2 * sum(len(entry.precisions) for entry in networks.SUITE.values())
_INTRODUCTION = """\
# The engine on public networks

Written by `python benchmarks/zoo.py table`. Milliseconds, the least of interleaved rounds; the ratio is the time of the
fastest peer over Edgewright's: above 1, Edgewright is faster. Networks have random weights and the sizes that people
deploy; int8 of transformers quantizes activations at run time. A dash: the peer's own tools do not make or run the
network. Peers of [the other benchmark](engine.md) that have no column were not measured.
"""


def _page(rows: list[dict[str, Any]]) -> str:
    ratios = [s for r in rows if (s := ratio(r)) is not None]
    below = sum(s < 1 for s in ratios)
    dates, commits = sorted({r["date"] for r in rows}), sorted({r["commit"] for r in rows})
    names = [name for name in engine.MODULES if any(name in r["ms"] for r in rows)]
    versions = {name: next(r["versions"][name] for r in reversed(rows) if name in r["versions"]) for name in names}
    head = " | ".join(names)
    summary = f"{len(ratios)} of {_TOTAL} cells are measured; geometric mean {_mean(ratios):.2f}; {below} below 1."
    lines = [
        _INTRODUCTION,
        f"{dates[0]} to {dates[-1]}, commits {', '.join(commits)}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
        "",
        f"**{summary}**",
        "",
        f"| network | precision | threads | ratio | {head} | peak memory over the best peer's |",
        f"|---|---|---:|---:|{'---:|' * len(names)}---:|",
    ]
    order = {name: at for at, name in enumerate(networks.SUITE)}
    for row in sorted(rows, key=lambda r: (order[r["network"]], r["precision"], r["threads"])):
        share = ratio(row)
        figures = " | ".join(f"{row['ms'][name]:.3g}" if name in row["ms"] else "-" for name in names)
        others = [mb for name, mb in row["peak_mb"].items() if name != "edgewright"]
        memory = f"{row['peak_mb']['edgewright'] / min(others):.2f}" if others else "-"
        figure = "-" if share is None else f"**{share:.2f}**" if share < 1 else f"{share:.2f}"
        lines.append(f"| {row['network']} | {row['precision']} | {row['threads']} | {figure} | {figures} | {memory} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("command", choices=("prepare", "run", "table"))
    add("--network", action="append", choices=tuple(networks.SUITE))
    add("--precision", action="append", choices=("fp32", "int8", "int4"))
    add("--threads", action="append", type=int)
    add("--only", action="append", choices=tuple(engine.MODULES), help="this engine; may be given several times")
    add("--rounds", type=int, default=12)
    add("--seconds", type=float, default=math.inf, help="begin no cell after so many seconds")
    add("--again", action="store_true", help="measure cells that have a row already")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()) / "edgewright-benchmark")
    add("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    {"prepare": prepare, "run": run, "table": table}[args.command](args)


if __name__ == "__main__":
    main()
