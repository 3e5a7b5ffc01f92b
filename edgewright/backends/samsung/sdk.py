"""Finds Samsung's compiler: the libraries of AI LiteCore, or ExecuTorch's adaptors to them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from edgewright.backends.samsung import adaptors
from edgewright.backends.samsung.litecore import FOLDER, LIBRARIES
from edgewright.errors import MissingError

ROOT_VARIABLE = "EXYNOS_AI_LITECORE_ROOT"
SITE = "https://soc-developer.semiconductor.samsung.com/global/development/ai-litecore"
REMEDY = (
    f"Unpack Exynos AI LiteCore ({SITE}, with a free account) and set {ROOT_VARIABLE} to its folder, or compile for "
    'simulation on the host: gen_samsung_backend_compile_spec("E9955", simulate_only=True), edgewright compile '
    "--simulate-only."
)


@dataclass(frozen=True)
class Sdk:
    """Location of the compiler: the SDK's folder, or None for the adaptors of an ExecuTorch source build."""

    root: Path | None


def find_sdk() -> Sdk | None:
    """The installed compiler, or None. A folder in the environment variable must be valid."""
    root = os.environ.get(ROOT_VARIABLE, "")
    if root:
        missing = [n for n in LIBRARIES if not (Path(root) / FOLDER / n).is_file()]
        if missing:
            rule = f"must hold {FOLDER}/{missing[0]}"
            raise MissingError(
                ROOT_VARIABLE, rule, value=root, remedy="Set it to the folder that holds the SDK's 'lib'."
            )
        return Sdk(Path(root))
    folder = Path(*adaptors.PACKAGE.split("."))
    for path in map(Path, sys.path):
        if all(any((path / folder).glob(f"{name}.*")) for name in adaptors.MODULES):
            return Sdk(None)
    return None


def installed_sdk() -> str | None:
    """Where the compiler is, for ``edgewright doctor``; None if it is not installed."""
    try:
        compiler = find_sdk()
    except MissingError:  # the variable does not name the SDK's folder
        return None
    return None if compiler is None else str(compiler.root or "modules of ExecuTorch")


def require() -> Sdk:
    compiler = find_sdk()
    if compiler is None:
        rule = "is not installed, and programs for Exynos NPUs need Samsung's compiler"
        raise MissingError("Exynos AI LiteCore", rule, remedy=REMEDY)
    return compiler
