#!/usr/bin/env python
"""Coverage-guided fuzzing of everything that reads a file: ``python tests/fuzz/fuzz_program.py MODE [flags]``.

MODE is pte, ptd, etdp (read only), bpte (read, and run the test cases) or run (read a .pte, load every method,
execute it), all under small limits. Anything but a result or an EdgewrightError is a finding. Flags are
libFuzzer's, such as ``-runs=100000``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["edgewright"]):
    from tests.support import hostile
    from tests.support.mutate import Cell, cells, extremes

MODES = ("pte", "ptd", "bpte", "etdp", "run")
CORPUS = Path(__file__).parent / "corpus"
GOLDEN = ROOT / "tests" / "golden"
WORK = ROOT / "build" / "fuzz"  # new inputs and findings
MAX_SIZE = 8192
_CHILD = "EDGEWRIGHT_FUZZ_MODE"
_MAX_CELLS = 4096  # a mutated file can claim any number


def known_cells(data: bytes) -> list[Cell]:
    """As many cells as can still be found in a file that may already be broken."""
    found: list[Cell] = []
    with contextlib.suppress(struct.error, IndexError, ValueError, RecursionError):
        found.extend(itertools.islice(cells(data), _MAX_CELLS))
    return [cell for cell in found if cell.at >= 0 and cell.at + struct.calcsize("<" + cell.code) <= len(data)]


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Set a few numbers of the file to extremes or to each other; now and then any bytes, as libFuzzer does."""
    chance = random.Random(seed)
    found = known_cells(data) if chance.random() < 0.8 else []
    if not found:
        return bytes(atheris.Mutate(data, max_size))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        cell = chance.choice(found)
        data = cell.put(data, _value(cell, data, found, chance))
    return data[:max_size]


def _value(cell: Cell, data: bytes, found: list[Cell], chance: random.Random) -> object:
    kin = [other for other in found if other.code == cell.code]
    pick = chance.random()
    if pick < 0.4 or cell.code in "fd":
        return chance.choice(extremes(cell, len(data)))
    if pick < 0.7:
        return chance.choice(kin).get(data)
    low, high = (-128, 127) if cell.code == "b" else (0, 255)
    near = cell.get(data) + chance.choice((-8, -4, -2, -1, 1, 2, 4, 8)) if pick < 0.85 else chance.randrange(24)
    return min(max(near, low), high)


def target(mode: str) -> Callable[[bytes], object]:
    actions = {"run": hostile.run, "bpte": hostile.verify}
    return actions.get(mode) or partial(hostile.read, mode)


def folders(mode: str) -> list[str]:
    """A working folder that starts with the small golden files, and the kept corpus."""
    work, kept = WORK / mode, CORPUS / ("run" if mode == "pte" else mode)
    work.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    for seed in GOLDEN.glob(f"*.{'pte' if mode == 'run' else mode}"):
        if seed.stat().st_size <= MAX_SIZE:
            (work / seed.name).write_bytes(seed.read_bytes())
    return [str(work), str(kept)]


def main(arguments: list[str]) -> None:
    if os.environ.get(_CHILD):  # libFuzzer merges in processes of its own, which it starts without our argument
        arguments = [os.environ[_CHILD], *arguments]
    if not arguments or arguments[0] not in MODES:
        sys.exit(f"usage: fuzz_program.py {'|'.join(MODES)} [libFuzzer flags]")
    mode, flags = arguments[0], arguments[1:]
    os.environ[_CHILD] = mode
    places = [] if any(not flag.startswith("-") for flag in flags) else folders(mode)
    defaults = [f"-max_len={MAX_SIZE}", "-timeout=10", "-rss_limit_mb=1024", f"-artifact_prefix={WORK}/{mode}-"]
    atheris.Setup([str(Path(__file__).resolve()), *defaults, *flags, *places], target(mode), custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
