"""The map in ``docs/architecture.md`` is true: packages, the order of imports, and every place that it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.architecture import GROUPS, PAGE, PICTURE, draw, packages

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "edgewright"
ORDER = [name for name, _ in packages(PAGE.read_text())]
FRAMEWORK = {"info", "table", "rules", "registry", "targets", "capture"}
PASSES = {"passes", "aten_to_core"}
ENTRY = {"docs", "docs_indexes"}


@cache
def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def package_of(module: str) -> str:
    """The line of the table that a module belongs to."""
    parts = module.split(".")[1:]
    if not parts:
        return "base"
    if parts[-1] == "__main__" or parts[0] in ENTRY:
        return "entry"
    if parts[0] == "backends" and len(parts) == 2 and parts[1] in FRAMEWORK:
        return "backends.framework"
    if parts[0] == "lowering" and len(parts) > 1 and parts[1] in PASSES:
        return "lowering.passes"
    return parts[0] if (PRODUCT / parts[0]).is_dir() else "base"


@cache
def imports(module: str, path: Path) -> list[str]:
    """Modules of ours that a file imports anywhere in it, type checkers' imports included."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else node.module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [name for name in names if name in modules() and name != module]
    return found


def test_every_package_has_a_line_and_every_line_a_package() -> None:
    assert {package_of(module) for module in modules()} == set(ORDER)
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_no_import_points_upward(package: str) -> None:
    above = set(ORDER[ORDER.index(package) + 1 :])
    against = [
        f"{module} imports {name}"
        for module, path in modules().items()
        if package_of(module) == package
        for name in imports(module, path)
        if package_of(name) in above
    ]
    assert not against


def test_an_import_against_the_order_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text("def late():\n    from edgewright.api.compile import compile\n")
    assert imports("edgewright.ir.late", path) == ["edgewright.api.compile"]
    assert ORDER.index(package_of("edgewright.api.compile")) > ORDER.index(package_of("edgewright.ir.late"))


def test_every_package_has_a_folder_of_tests() -> None:
    untested = [
        package.relative_to(PRODUCT)
        for package in sorted(path.parent for path in PRODUCT.rglob("__init__.py") if path.parent != PRODUCT)
        if not any(folder.glob("test_*.py") for folder in places_of_tests(package.relative_to(PRODUCT)))
    ]
    assert not untested


def places_of_tests(package: Path) -> Iterator[Path]:
    """Where a reader looks: the folder of the package's name, then those of the packages around it."""
    yield from ((ROOT / "tests" / folder) for folder in (package, *package.parents[:-1]))


def test_contributing_lists_every_test_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(re.findall(r"`tests/(\w+)`", text)) == folders | {"X"}


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """A cycle of modules, the first repeated at the end; empty if there is none. Depth first, without recursion."""
    done: set[str] = set()
    for start in graph:
        path: list[str] = []
        pending = [(start, 0)]
        while pending:
            name, depth = pending.pop()
            del path[depth:]
            if name in path:
                return [*path[path.index(name) :], name]
            path.append(name)
            if name not in done:
                done.add(name)
                pending += [(each, depth + 1) for each in graph[name]]
    return []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    cycle = find_cycle({module: sorted(set(imports(module, path))) for module, path in modules().items()})
    assert not cycle, " -> ".join(cycle)


def test_a_cycle_of_modules_is_seen(tmp_path: Path) -> None:
    texts = {
        "edgewright.errors": "from edgewright.files import write_file\n",
        "edgewright.files": "if TYPE_CHECKING:\n    from edgewright.units import share\n",
        "edgewright.units": "def late():\n    import edgewright.errors\n",
        "edgewright.hints": "from edgewright.units import share\n",
    }
    graph = {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        graph[name] = imports(name, path)
    in_order = ["edgewright.errors", "edgewright.files", "edgewright.units", "edgewright.errors"]
    assert find_cycle(graph) == in_order
    assert find_cycle({"edgewright.hints": graph["edgewright.hints"], "edgewright.units": []}) == []


def test_the_picture_is_drawn_from_the_table() -> None:
    assert PICTURE.read_text() == draw(packages(PAGE.read_text()))


PLACES = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`(?: · `([\w.]+)`)?", PAGE.read_text())))


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_places_that_the_page_names_exist(path: str, name: str) -> None:
    known = [path, f"edgewright/{path}", *(f"edgewright/backends/{b}/{path}" for b in ("xnnpack", "ethos_u"))]
    found = next((ROOT / p for p in known if (ROOT / p).exists()), None)
    assert found is not None, path
    if name:
        body: list[ast.stmt] = ast.parse(found.read_text()).body
        for part in name.split("."):
            match = [n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part]
            assert match, f"{path} has no {name}"
            body = match[0].body
