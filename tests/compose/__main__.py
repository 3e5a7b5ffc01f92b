"""Searches for compositions that give wrong numbers.

``python -m tests.compose --seconds 300 --seed new``   a search of new compositions, as CI does it
``python -m tests.compose --all``                      all of ``docs/soundness.md``; goes on where it stopped
``python -m tests.compose replay CASE.json ...``       case files again
``python -m tests.compose shrink UNIT SEED``           the smallest composition that fails like this one
``python -m tests.compose page STATE.json ...``        the tables of ``docs/soundness.md`` from finished searches
"""

from __future__ import annotations

import argparse
import platform
import random
import secrets
import subprocess
import sys
import time
from pathlib import Path

from tests.compose.campaign import ROOT, State, Unit, commit, python_of, run_unit

CASES = Path(__file__).parent / "cases"
GRAPHS = {
    "core:avx512": 5000, "core:avx2": 2500, "varying:avx512": 1500, "core:neon": 150, "core:i8mm": 150,
    "tosa:avx512": 2500, "tosa:avx2": 700, "tosa:i8mm": 50, "tflite:avx512": 1800, "tflite:avx2": 500,
    "tflite:i8mm": 50, "qnn:avx512": 2000, "qnn:avx2": 500, "qnn:i8mm": 50, "enn:avx512": 2000, "enn:avx2": 500,
    "enn:i8mm": 50, "names:avx512": 300, "stock:xnnpack": 600,
    "object:x86-64-v3": 600, "object:cortex-m4": 150, "object:cortex-m55": 150,
}  # fmt: skip
MODELS = {
    "model:xnnpack:fp32": 140, "model:xnnpack:fp16": 60, "model:xnnpack:int8": 150, "model:xnnpack:dynamic": 150,
    "model:xnnpack:dynamic-w4": 60, "model:xnnpack:int8:avx2": 40, "model:xnnpack:dynamic:avx2": 40,
    "model:ethos-u55-128:int8": 90, "model:ethos-u85-256:int8": 70, "model:sm8650:int8": 70, "model:e9955:int8": 65,
    "model:imxrt700:int8": 65, "model:portable:fp32": 100,
    "model:ethos-u85-256:a16w8": 30, "model:sm8650:a16w8": 30, "model:e9955:a16w16": 30,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    commands = {"worker": _worker, "replay": _replay, "shrink": _shrink, "page": _page}
    if arguments and arguments[0] in commands:
        return commands[arguments[0]](arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="how long to search")
    parser.add_argument("--seed", default="new", help="a number, or 'new' for others each time")
    parser.add_argument("--units", default=None, help="only units whose name contains this")
    parser.add_argument("--all", action="store_true", help="the whole table of docs/soundness.md")
    parser.add_argument("--models", type=int, default=sum(MODELS.values()), help="how many models --all compiles")
    parser.add_argument("--state", type=Path, default=Path("compose.state.json"), help="where --all keeps its state")
    options = parser.parse_args(arguments)
    return _all(options) if options.all else _search(options)


def _units(only: str | None, models: int = sum(MODELS.values())) -> list[Unit]:
    """``models`` are divided as ``MODELS`` says."""
    share = {name: -(-total * models // sum(MODELS.values())) for name, total in MODELS.items()}
    units = [Unit(name, total) for name, total in {**GRAPHS, **share}.items() if only is None or only in name]
    if not units:
        raise SystemExit(f"--units: must be a part of a unit's name: {', '.join((*GRAPHS, *MODELS))}; got {only}")
    missing = [unit.name for unit in units if not Path(python_of(unit.name)[0]).exists()]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)}: Arm's Python under qemu is missing; tests/support/aarch64.sh installs it"
        )
    return units


_LEAST_SECONDS = 20  # for a unit: starting torch or qemu takes several. A short search takes some units by its seed


def _search(options: argparse.Namespace) -> int:
    base = secrets.randbelow(1 << 30) if options.seed == "new" else int(options.seed)
    print(f"seed {base}", flush=True)
    state = State(base, _units(options.units), commit=commit(), started=_now())
    seconds = options.seconds or 60.0
    until = time.monotonic() + seconds
    most = max(1, int(seconds / _LEAST_SECONDS))
    order = random.Random(base).sample(state.units, min(most, len(state.units)))
    while time.monotonic() < until and not all(u.done for u in order):
        for at, unit in enumerate(order):  # each gets a share of the time that is left
            now = time.monotonic()
            run_unit(state, unit, _chunk(unit), now + (until - now) / (len(order) - at), _print)
    _summary(state)
    return 1 if state.failures else 0


def _all(options: argparse.Namespace) -> int:
    if options.state.exists():
        state = State.load(options.state)
    else:
        base = secrets.randbelow(1 << 30) if options.seed == "new" else int(options.seed)
        state = State(base, _units(options.units, options.models), commit=commit(), started=_now())
    until = time.monotonic() + (options.seconds or 1e9)
    while time.monotonic() < until and not all(u.done for u in state.units):
        for unit in state.units:
            if not unit.done:
                run_unit(state, unit, _chunk(unit), until, _print)
                state.ended = _now()
                state.save(options.state)
    _summary(state)
    if all(u.done for u in state.units) and options.units is None:
        from tests.compose.report import write_page

        write_page([state])
    return 1 if state.failures else 0


def _chunk(unit: Unit) -> int:
    """Models take long, and so does every start of torch or of qemu."""
    if unit.name.startswith("model"):
        return 12
    return 256 if python_of(unit.name) == [sys.executable] else 64


def _print(line: str) -> None:
    print(line, flush=True)


def _now() -> str:
    return time.strftime("%Y-%m-%d")


def _summary(state: State) -> None:
    for unit in state.units:
        rate = 60 * unit.next / unit.seconds if unit.seconds else 0.0
        print(f"{unit.name:28} {unit.passed:6} passed {unit.failed:4} failed {unit.skipped:4} skipped {rate:7.0f}/min")


def _worker(arguments: list[str]) -> int:
    from tests.compose.worker import work

    unit, seed, count = arguments
    work(unit, int(seed), int(count))
    return 0


def _replay(arguments: list[str]) -> int:
    from tests.compose.replay import replay
    from tests.compose.spec import load

    failed = 0
    for path in arguments:
        detail = replay(load(Path(path)))
        print(f"{path}: {detail or 'passes'}")
        failed += bool(detail)
    return min(failed, 1)


def _shrink(arguments: list[str]) -> int:
    from tests.compose.replay import shrunk

    unit, seed = arguments[:2]
    if python_of(unit) != [sys.executable] and platform.machine() != "aarch64":
        return subprocess.call([*python_of(unit), "-m", "tests.compose", "shrink", unit, seed], cwd=ROOT)
    spec, detail = shrunk(unit, int(seed))
    print(f"# {detail}\n{spec.text()}")
    return 0


def _page(arguments: list[str]) -> int:
    from tests.compose.report import write_page

    write_page([State.load(Path(path)) for path in arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
