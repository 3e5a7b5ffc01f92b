"""Every import in the example scripts of the ExecuTorch that is installed: ours, or refused with the nearest thing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgewright.compat.finder import installed
from edgewright.compat.table import counterpart, is_executorch_only, modules, table
from edgewright.errors import MissingCounterpartError
from tests.compat.test_table import imported, take

FOLDERS = ("examples/xnnpack", "examples/nxp", "examples/qualcomm", "examples/arm", "examples/samsung",
           "backends/arm/scripts")  # fmt: skip


def scripts() -> Iterator[Path]:
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    for root in spec.submodule_search_locations:
        for folder in FOLDERS:
            yield from sorted(Path(root, folder).rglob("*.py"))


def found() -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    for path in scripts():
        source = path.read_text(encoding="utf-8")
        if all(node.level == 0 for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)):
            names.update(dict.fromkeys(imported(source), path.name))
    return {name: script for name, script in names.items() if not is_executorch_only(name[0])}


def is_ours(module: str, name: str) -> bool:
    if not name or name == "*":
        return module in modules()
    return (
        counterpart(module, name) is not None
        or f"{module}.{name}" in modules()
        or f"{module}:{name}" in table().import_only
    )


def test_every_import_is_ours_or_refused_in_words() -> None:
    names = found()
    assert len(names) > 120
    ours = {name for name in names if is_ours(*name)}
    with installed():
        for module, name in sorted(names):
            if (module, name) in ours:
                take(module, name)
                continue
            with pytest.raises(
                MissingCounterpartError, match=r"no counterpart in Edgewright\n  (Nearest|Did you mean)"
            ):
                take(module, name)
    assert len(ours) >= 130, sorted(set(names) - ours)


def test_examples_resolve_all_their_imports() -> None:
    """Names that are absent can be imported for an option that is not used; Arm's scripts for VGF are left out."""
    examples = [path for path in scripts() if "examples" in path.parts]
    assert len(examples) > 60
    absent = {
        (path.name, *name)
        for path in examples
        for name in imported(path.read_text(encoding="utf-8"))
        if not is_executorch_only(name[0]) and not is_ours(*name)
    }
    assert not absent
