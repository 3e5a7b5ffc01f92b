"""The table of names: every import of ExecuTorch's pages and example scripts is ours, or is refused in words."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from edgewright.compat.finder import installed
from edgewright.compat.table import ROOT, counterpart, is_executorch_only, modules, table
from edgewright.errors import MissingCounterpartError, MissingError, UsageError
from tests.compat.seeds import DATA, PAGES, blocks

RECORDED = [
    (module, "" if name == "-" else name)
    for module, name, _ in (
        line.split() for line in (DATA / "executorch_imports.txt").read_text().splitlines() if not line.startswith("#")
    )
]


def imported(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOT):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith(ROOT))


SEEDS = sorted({found for page in PAGES for block in blocks(page) for found in imported(block)})


def take(module: str, name: str) -> object:
    """What ``from module import name`` gives, or ``import module``."""
    space: dict[str, object] = {}
    exec(f"from {module} import {name}" if name else f"import {module}", space)
    return space[name] if name and name != "*" else space


def test_the_pages_are_all_there() -> None:
    assert len(PAGES) == 5
    assert len(SEEDS) >= 15


@pytest.mark.parametrize(("module", "name"), SEEDS, ids=lambda part: str(part) or "-")
def test_what_the_pages_import_is_ours(module: str, name: str) -> None:
    with installed():
        found = take(module, name)
        assert isinstance(sys.modules[module], ModuleType)
    if name:
        assert str(found.__module__).startswith("edgewright.")


@pytest.mark.parametrize(("module", "name"), RECORDED, ids=lambda part: str(part) or "-")
def test_what_example_scripts_import_is_ours_or_refused_with_the_nearest(module: str, name: str) -> None:
    if is_executorch_only(module):
        return  # scripts of ExecuTorch's, found where it keeps them
    with installed():
        if (
            counterpart(module, name) is not None
            or (not name and module in modules())
            or f"{module}:{name}" in table().import_only
        ):
            take(module, name)
            return
        if f"{module}.{name}" in modules() or (name == "*" and module in table().names):
            take(module, name)
            return
        with pytest.raises(MissingCounterpartError, match=r"no counterpart in Edgewright\n  (Nearest|Did you mean)"):
            take(module, name)


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in table().names.items() for n in names])
def test_every_row_leads_somewhere(module: str, name: str) -> None:
    found = counterpart(module, name)
    assert found is not None
    assert hasattr(import_module(found[0]), found[1])


def test_what_is_absent_is_not_there_too() -> None:
    for entry in table().absent:
        module, _, name = entry.partition(":")
        assert not name or counterpart(module, name) is None


def test_names_that_are_spelt_wrong_get_the_right_one() -> None:
    with installed(), pytest.raises(ImportError, match="Did you mean to_edge_transform_and_lower"):
        take("executorch.exir", "to_edge_transform_and_lowr")
    with installed(), pytest.raises(MissingError, match="no counterpart"):
        take("executorch.no_such_thing", "")


def test_an_absent_name_that_scripts_import_for_an_option_is_refused_when_it_is_used() -> None:
    with installed():
        show = take("executorch.devtools.visualization.visualization_utils", "visualize_with_clusters")
    with pytest.raises(UsageError, match="Model Explorer"):
        show(None)  # type: ignore[operator]


def test_an_installed_executorch_is_hidden_and_comes_back() -> None:
    version = import_module("executorch.version")
    with installed():
        ours = import_module("executorch.exir")
        assert ours.EdgeCompileConfig.__module__.startswith("edgewright.")
        assert not hasattr(ours, "__file__")
        assert "to_edge" in dir(ours)
        names: dict[str, object] = {}
        exec("from executorch.exir import *", names)
        assert names["to_edge"].__module__.startswith("edgewright.")  # type: ignore[attr-defined]
    assert sys.modules["executorch.version"] is version
    assert "executorch.exir" not in sys.modules or hasattr(sys.modules["executorch.exir"], "__file__")


def test_examples_of_executorch_are_found_where_it_keeps_them() -> None:
    with installed():
        found = take("executorch.examples.xnnpack", "MODEL_NAME_TO_OPTIONS")
        assert "mv2" in found  # type: ignore[operator]
        with pytest.raises(MissingCounterpartError, match="come with ExecuTorch"):
            take("executorch.examples.no_such_folder", "")
