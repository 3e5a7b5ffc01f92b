"""Mutated files through every command that reads files: none may end in "a bug in Edgewright" (exit code 70).

Files are those of ``tests/golden``: programs of all backends with their weights, host twins and inputs, bundles and
profiles. A mutation changes one of the files of a command: fields of its format, the blob of a delegate, the manifest,
the host twin, or any bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.cli import exit_codes, main
from edgewright.errors import EdgewrightError
from edgewright.formats.pte_reader import read_program
from edgewright.formats.pte_writer import write_program
from edgewright.formats.schema import Program
from tests.fuzz.file_mutations import mutate_blob, mutate_bytes, mutate_file
from tests.fuzz.graph_seeds import DIALECTS, operators
from tests.fuzz.twin_mutations import Mutator

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
_MOST = 9000  # bytes of a file
_TWIN, _XNNPACK = b"EWTWIN", b"XH00"
_RECIPE = b'quantize = "int8"\n[modules]\n"stem.*" = "fp16"\n[targets.sm8650]\nquantize = "a16w8"\n'
_SHARES = {".pte": 6, ".twin": 12, ".ptd": 3, ".bpte": 6, ".etdp": 4}  # of executions, per file
_WEIGHTS = {"portable_external": "weights.ptd", "mlp_ptd_portable": "mlp_portable_weights.ptd",
            "mlp_ptd_xnnpack": "mlp_xnn_weights.ptd",
            "ethos_u55_128_external": "ethos_u55_128_external.ptd"}  # fmt: skip
_PROGRAM_COMMANDS = (
    ("inspect", "m.pte"), ("inspect", "m.pte", "--json"), ("size", "m.pte"), ("size", "m.pte", "--json"),
    ("verify", "m.pte"), ("disasm", "m.pte"), ("disasm", "m.pte", "--full"), ("disasm", "m.pte", "--json"),
    ("strip", "m.pte", "-o", "small.pte"), ("diff", "m.pte", "original.pte"), ("diff", "original.pte", "m.pte"),
    ("run", "m.pte", "--max-memory", "64M"), ("run", "m.pte", "--max-memory", "64M", "--inputs", "x.npz"),
    ("run", "m.pte", "--max-memory", "64M", "--profile"), ("bundle", "m.pte", "--inputs", "x.npz", "-o", "m.bpte"),
    ("profile", "m.pte", "--repeat", "1", "--etdump", "p.etdp"), ("bench", "m.pte", "--seconds", "0.01"),
    ("device", "fvp", "m.pte", "--dry-run"), ("device", "run", "m.pte", "--dry-run"),
)  # fmt: skip
_COMMANDS = {
    ".pte": _PROGRAM_COMMANDS,
    ".npz": tuple(c for c in _PROGRAM_COMMANDS if "x.npz" in c),
    ".ptd": (("inspect", "w.ptd"), ("inspect", "w.ptd", "--json"), ("verify", "m.pte"), ("run", "m.pte"),
             ("size", "m.pte"), ("verify", "w.ptd")),
    ".twin": (("run", "m.pte", "--max-memory", "64M"), ("verify", "m.pte"), ("disasm", "m.pte"), ("inspect", "m.pte")),
    ".bpte": (("inspect", "m.bpte"), ("inspect", "m.bpte", "--json"), ("verify", "m.bpte")),
    ".etdp": (("inspect", "p.etdp"), ("inspect", "p.etdp", "--json"), ("verify", "p.etdp")),
    ".toml": (("recipe", "r.toml"),),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Files of a command by name, and the one that is mutated."""

    files: dict[str, bytes]
    mutated: str


@cache
def cases() -> tuple[Case, ...]:
    """All programs, bundles, profiles and recipes, and each file beside them."""
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    yield Case({"r.toml": _RECIPE}, "r.toml")
    for path in sorted(GOLDEN.rglob("*")):
        if path.suffix in (".bpte", ".etdp") and path.stat().st_size <= _MOST:
            name = f"m{path.suffix}" if path.suffix == ".bpte" else "p.etdp"
            yield Case({name: path.read_bytes()}, name)
        if path.suffix == ".pte" and path.stat().st_size <= _MOST:
            files = _beside(path)
            yield from (Case(files, name) for name in files if name != "original.pte")


def _beside(path: Path) -> dict[str, bytes]:
    files = {"m.pte": path.read_bytes(), "original.pte": path.read_bytes()}
    twin, arrays = path.with_suffix(".twin"), path.with_suffix(".npz")
    if twin.exists():
        files["m.twin"] = twin.read_bytes()
    if arrays.exists():
        files["x.npz"] = _inputs(arrays)
    if path.stem in _WEIGHTS:
        files["w.ptd"] = path.with_name(_WEIGHTS[path.stem]).read_bytes()
    return files


def _inputs(path: Path) -> bytes:
    """The inputs of the first call: the file has all inputs and outputs."""
    with np.load(path) as stored:
        names = [name for name in stored if re.search(r"^(0\.)?(forward\.)?in\d*$", name)]
        arrays = {f"in{index}": stored[name] for index, name in enumerate(names)}
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


# ------------------------------------------------------------------------------------------------------- mutations


def mutate(name: str, data: bytes, chance: random.Random) -> bytes:
    suffix = Path(name).suffix
    if suffix == ".pte" and chance.random() < 0.6:
        return mutate_segment(data, chance)
    if suffix == ".twin":
        return _mutate_twin(data, chance)
    return mutate_file(data, chance) if suffix in (".pte", ".ptd", ".bpte", ".etdp") else mutate_bytes(data, chance)


def mutate_segment(data: bytes, chance: random.Random) -> bytes:
    """The blob of a delegate, the manifest, or constants; the file around it is correct."""
    program = read_program(data)
    old = program.segments or []
    if not old:
        return mutate_file(data, chance)
    chosen = chance.randrange(len(old))
    program.segments = None
    for index, segment in enumerate(old):
        content = bytes(segment.data)
        program.add_segment(_mutate_content(content, chance) if index == chosen else content, 16)
    return _written(program) or mutate_file(data, chance)


def _written(program: Program) -> bytes | None:
    with contextlib.suppress(EdgewrightError):  # constants that are too short for their tensors
        return write_program(program)
    return None


def _mutate_content(content: bytes, chance: random.Random) -> bytes:
    if content.startswith(_TWIN):
        return _mutate_twin(content, chance)
    if content[4:8] == _XNNPACK and chance.random() < 0.8:
        return mutate_blob(content, chance)
    if content.startswith(b'{"') and chance.random() < 0.8:
        return _mutate_json(content, chance)
    return mutate_bytes(content, chance)


def _mutate_twin(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return mutate_bytes(data, chance)
    dialect = next((d for d in DIALECTS if f'"{d}.'.encode() in data), "core")
    return Mutator(operators(dialect))(data, chance)


def _mutate_json(content: bytes, chance: random.Random) -> bytes:
    """One value of a JSON document replaced by one of another type."""
    document = json.loads(content)
    leaves: list[tuple[Any, Any]] = []
    _collect(document, leaves)
    if leaves:
        holder, key = chance.choice(leaves)
        holder[key] = chance.choice((None, True, -1, 0, 2**70, 1.5, 1e400, "", "x" * 300, "\x1b[31m", [], {}, [[]]))
    return json.dumps(document).encode()


def _collect(holder: Any, leaves: list[tuple[Any, Any]]) -> None:
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        leaves.append((holder, key))
        if isinstance(holder[key], dict | list):
            _collect(holder[key], leaves)


# -------------------------------------------------------------------------------------------------------- commands


def execute(seed: int) -> tuple[int, str, str]:
    """A command on mutated files: its exit code, the command, and what it wrote to stderr."""
    chance = random.Random(seed)
    case = chance.choices(cases(), [_SHARES.get(Path(case.mutated).suffix, 1) for case in cases()])[0]
    command = chance.choice(_COMMANDS[Path(case.mutated).suffix])
    content = mutate(case.mutated, case.files[case.mutated], chance)
    return run_command(command, case.files | {case.mutated: content})


def run_command(command: Sequence[str], files: dict[str, bytes]) -> tuple[int, str, str]:
    """In a folder of its own, with weights where a program has them beside it."""
    arguments = [*command, "--data", "w.ptd"] if _takes_data(command) and "w.ptd" in files else list(command)
    output, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        for name, data in files.items():
            Path(name).write_bytes(data)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = _recipe(arguments) if command[0] == "recipe" else main(arguments)
    return code, " ".join(arguments), errors.getvalue()


def _takes_data(command: Sequence[str]) -> bool:
    return command[0] in ("run", "size", "verify", "bench", "profile", "bundle", "disasm") and command[1] == "m.pte"


def _recipe(arguments: Sequence[str]) -> int:
    """What ``compile --recipe`` reads first."""
    from edgewright.api.recipe import read_recipe
    from edgewright.cli import guard

    def read() -> int:
        read_recipe(arguments[1]).for_target("sm8650")
        return exit_codes.OK

    return guard(read)


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def problem(outcome: tuple[int, str, str]) -> str:
    """What is wrong with a command's end; empty if nothing is."""
    code, command, errors = outcome
    if code != exit_codes.BUG and "Traceback" not in errors:
        return ""
    frames = re.findall(r'File ".*/(edgewright/[^"]+)", line (\d+)', errors)
    last = ":".join(frames[-1]) if frames else "?"
    lines = [line for line in errors.splitlines() if line and not line.startswith(" ")]
    reason = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception|Warning)\b", line)), "")
    return f"exit {code} of {command}: {last} {reason}"[:300]
