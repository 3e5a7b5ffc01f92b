"""Samsung's compiler: AI LiteCore's libraries, or the modules through which ExecuTorch speaks to them; and what to do
where neither is found."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from edgewright.backends.samsung import adaptors
from edgewright.backends.samsung.graph_record import record
from edgewright.backends.samsung.litecore import FOLDER, LIBRARIES
from edgewright.backends.samsung.target import EnnTarget
from edgewright.errors import MissingError
from edgewright.ir.graph import Graph

ROOT = "EXYNOS_AI_LITECORE_ROOT"
SITE = "https://soc-developer.semiconductor.samsung.com/global/development/ai-litecore"
REMEDY = (
    f"Unpack Exynos AI LiteCore ({SITE}, with a free account) and set {ROOT} to its folder, or make a file for this "
    'machine only: gen_samsung_backend_compile_spec("E9955", simulate_only=True), edgewright compile --simulate-only.'
)


@dataclass(frozen=True)
class Sdk:
    """Where the compiler is: the SDK's folder, or None for the modules of a source build of ExecuTorch."""

    root: Path | None


def find() -> Sdk | None:
    """The compiler of this machine, if there is one. A folder that is named must be right."""
    named = os.environ.get(ROOT, "")
    if named:
        missing = [n for n in LIBRARIES if not (Path(named) / FOLDER / n).is_file()]
        if missing:
            rule = f"must hold {FOLDER}/{missing[0]}"
            raise MissingError(ROOT, rule, value=named, remedy="Set it to the folder that holds the SDK's 'lib'.")
        return Sdk(Path(named))
    folder = Path(*adaptors.PACKAGE.split("."))
    for path in map(Path, sys.path):
        if all(any((path / folder).glob(f"{name}.*")) for name in adaptors.MODULES):
            return Sdk(None)
    return None


def require() -> Sdk:
    found = find()
    if found is None:
        rule = "is not installed; programs for Exynos NPUs are made by Samsung's compiler"
        raise MissingError("Exynos AI LiteCore", rule, remedy=REMEDY)
    return found


def compile_graph(device: Graph, target: EnnTarget) -> bytes:
    """The SDK's bytes for a device graph, nothing added."""
    from edgewright.backends.samsung.worker import compile_apart

    return compile_apart(record(device), target, require())
