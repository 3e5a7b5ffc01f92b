"""What is fuzzed: readers, the runtime, the command line, and the engine against the reference in every dialect."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.file_mutations import mutate_blob, mutate_file
from tests.support import hostile

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
GOLDEN = ROOT / "tests" / "golden"
WORK = ROOT / "build" / "fuzz"  # new inputs and findings
MAX_SIZE = 8192  # bytes of a file
_MAX_FILES = 500  # of those that earlier runs added

Mutate = Callable[[bytes, random.Random], bytes]


class Result(NamedTuple):
    """``category`` is empty unless this is a finding. ``features``: what the file reached, if that is known."""

    category: str = ""
    reason: str = ""
    features: str = ""


@dataclass(frozen=True)
class Target:
    """``goal``: executions of a complete run. ``seconds``: that one execution may take. ``batch``: executions of one
    process, which learns what others kept when it starts. ``guided``: ``fuzz_program`` has a mode of this name."""

    name: str
    goal: int
    files: Callable[[], list[bytes]]
    mutate: Callable[[], Mutate]
    execute: Callable[[bytes, int], Result]
    start: Callable[[int], None] = lambda seed: None  # of a process
    seconds: int = 20
    batch: int = 1 << 20
    guided: bool = False


def reader(mode: str) -> Callable[[bytes], object]:
    """What a mode does with a file: ``run`` and ``bpte`` execute it, the others read it."""
    actions: dict[str, Callable[[bytes], object]] = {"run": hostile.run, "bpte": hostile.verify}
    return actions.get(mode) or partial(hostile.read, mode)


def _reader_target(mode: str, goal: int) -> Target:
    action, nothing = reader(mode), Result()

    def execute(data: bytes, number: int) -> Result:
        action(data)
        return nothing

    return Target(mode, goal, partial(reader_files, mode), lambda: mutate_file, execute, guided=True)


def reader_files(mode: str) -> list[bytes]:
    """Small golden files, the kept corpus, and what runs guided by coverage added."""
    suffix, kept = "pte" if mode == "run" else mode, CORPUS / ("run" if mode == "pte" else mode)
    paths = [*sorted(GOLDEN.glob(f"*.{suffix}")), *sorted(kept.iterdir())]
    added = sorted((WORK / mode).iterdir()) if (WORK / mode).is_dir() else []
    every = (path.read_bytes() for path in (*paths, *added[:_MAX_FILES]))
    return [data for data in dict.fromkeys(every) if 0 < len(data) <= MAX_SIZE]


def _differential_target(dialect: str, goal: int) -> Target:
    def execute(data: bytes, number: int) -> Result:
        from tests.fuzz.compare import compare

        found = compare(dialect, data, number)
        return Result(found.category, found.reason, found.reference.features() if found.reference.graph else "")

    name = f"diff-{dialect}"
    files, mutate = partial(graph_files, dialect, name), partial(graph_mutator, dialect)
    return Target(name, goal, files, mutate, execute, _compile_here, seconds=180, batch=1000)


def _compile_here(seed: int) -> None:
    """Seven of eight seeds run code that LLVM does not optimize, as compositions do (docs/soundness.md)."""
    from tests.fuzz.compare import compile_in_this_process

    compile_in_this_process(optimize=seed % 8 == 0)


def graph_files(dialect: str, name: str) -> list[bytes]:
    """Small graphs of every operator, the kept corpus, and what earlier executions added."""
    from tests.fuzz.graph_seeds import stored_seeds

    kept = sorted((CORPUS / "differential").glob(f"{dialect}-*"))
    added = sorted((WORK / name).iterdir()) if (WORK / name).is_dir() else []
    return [*stored_seeds(dialect, WORK / "seeds"), *(path.read_bytes() for path in (*kept, *added))]


def graph_mutator(dialect: str) -> Mutate:
    """Mutates a file of the dialect; one that is too broken to be mutated further stays as it is."""
    from tests.fuzz.graph_seeds import operators
    from tests.fuzz.twin_mutations import Mutator

    mutate: Mutate = mutate_blob if dialect == "xnnpack" else Mutator(operators(dialect))

    def mutated(data: bytes, chance: random.Random) -> bytes:
        try:
            return mutate(data, chance)
        except (LookupError, TypeError, ValueError, AttributeError, struct.error, RecursionError):
            return data

    return mutated


def _command_line_target(goal: int) -> Target:
    """The file of an execution is the seed of a command and its mutated files."""

    def execute(data: bytes, number: int) -> Result:
        from tests.fuzz.command_line import execute as run
        from tests.fuzz.command_line import problem

        found = problem(run(int.from_bytes(data, "little")))
        return Result("exit 70", found) if found else Result()

    def mutate(data: bytes, chance: random.Random) -> bytes:
        return chance.randbytes(6)

    return Target("cli", goal, lambda: [b""], lambda: mutate, execute, seconds=120, batch=2000)


GOALS = {"pte": 2_000_000, "ptd": 4_000_000, "bpte": 500_000, "etdp": 2_970_000, "run": 370_000}
DIALECT_GOALS = {"core": 30_000, "xnnpack": 30_000, "tosa": 20_000, "tflite": 20_000, "qnn": 20_000, "enn": 20_000}
TARGETS = {
    target.name: target
    for target in (
        *(_reader_target(mode, goal) for mode, goal in GOALS.items()),
        *(_differential_target(dialect, goal) for dialect, goal in DIALECT_GOALS.items()),
        _command_line_target(20_000),
    )
}
