#!/usr/bin/env python
"""Coverage-guided fuzzing of everything that reads a file: ``python tests/fuzz/fuzz_program.py MODE [flags]``.

MODE is pte, ptd, etdp (read only), bpte (read, and run the test cases) or run (read a .pte, load every method,
execute it), all under small limits. Anything but a result or an EdgewrightError is a finding. Flags are
libFuzzer's, such as ``-runs=100000``.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

with atheris.instrument_imports(include=["edgewright"]):
    from tests.fuzz.file_mutations import known_cells, mutate_cells
    from tests.fuzz.targets import CORPUS, GOLDEN, MAX_SIZE, WORK, reader
    from tests.support.mutate import Cell

MODES = ("pte", "ptd", "bpte", "etdp", "run")
COUNT_VARIABLE = "EDGEWRIGHT_FUZZ_COUNT"  # path of 8 bytes
_CHILD = "EDGEWRIGHT_FUZZ_MODE"


class Mutator:
    """Sets a few numbers of the file to extremes or to each other; now and then any bytes, as libFuzzer does.

    libFuzzer mutates what this returned several times in a row. Walking the file takes longer than reading it, so the
    cells of the first file serve all of them: a file of the same length has numbers at the same offsets.
    """

    def __init__(self) -> None:
        self._last: bytes = b""
        self._cells: tuple[Cell, ...] = ()

    def __call__(self, data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() >= 0.8:
            return bytes(atheris.Mutate(data, max_size))
        found = self._cells if data == self._last else known_cells(data)
        if not found:
            return bytes(atheris.Mutate(data, max_size))
        data = mutate_cells(data, found, chance)
        self._last, self._cells = data, found
        return data[:max_size]


def counted(action: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The action, and the number of its executions in a file that outlives this process."""
    path = os.environ.get(COUNT_VARIABLE)
    if not path:
        return action
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 8)
    count = ctypes.c_uint64.from_buffer(memory)

    def execute(data: bytes) -> object:
        count.value += 1
        return action(data)

    return execute


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
    inputs = [] if any(not flag.startswith("-") for flag in flags) else folders(mode)
    defaults = [f"-max_len={MAX_SIZE}", "-timeout=20", "-rss_limit_mb=1024", f"-artifact_prefix={WORK}/{mode}-"]
    atheris.Setup(
        [str(Path(__file__).resolve()), *defaults, *flags, *inputs], counted(reader(mode)), custom_mutator=Mutator()
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
