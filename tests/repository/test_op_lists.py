"""Lists of operators outside the op table and the tables of backends: each belongs to one place, and has a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgewright
from edgewright.ir.aten.ops import OPS

ROOT = Path(edgewright.__file__).parent
FEWEST = 6  # names that make a list
FOLDERS = ("api", "backends", "compat", "frontend", "lowering/partition", "lowering/passes", "program", "quantize")
TABLES = ("ops.py", "elementwise.py", "dialect")  # of a backend: what it calls an operator, and how it lowers it
REASONS = {
    "api/quantized_graph.py _DISCONTINUOUS": "operators of exported programs, most of which have no row",
    "backends/ethos_u/partitioner.py _FLOAT_OPS": "what the export to TOSA files, a tool for debugging, can write",
    "frontend/aliases.py SAME_OR_COPY": "which results of torch may be their operand",
    "frontend/aliases.py VIEW_INVERSES": "a function per view, from its result to what it views",
    "frontend/aliases.py _SPLIT_OPS": "views of torch with several results, some of which have no row",
    "frontend/constant_folding.py _RESHAPES": "reshapes of torch, some of which have no row",
    "frontend/decompose/complex_numbers.py _COMPLEX": "what every release's kernels do with complex numbers",
    "program/wide_accumulation.py _KINDS": "what the stock runtime's kernels add up in 16 bits",
    "quantize/annotate.py _OF_INTEGERS": "how models compute with rounded elements before they are indices",
    "quantize/quantizer.py _NO_DECOMPOSE": "what torchao looks for when it folds batch norms",
}


def op_name(node: ast.expr | None) -> str | None:
    """The operator that a string or an attribute of ``torch.ops.aten`` names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.removeprefix("aten::").removeprefix("aten.").split(".")[0]
        return name if name in OPS else None
    parts = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
    return parts[parts.index("aten") + 1] if "aten" in parts[:-1] else None


def names_in(node: ast.AST) -> list[str]:
    items: list[ast.expr | None] = (
        list(node.elts) if isinstance(node, ast.Set | ast.Tuple | ast.List) else
        list(node.keys) if isinstance(node, ast.Dict) else []
    )  # fmt: skip
    return [name for name in map(op_name, items) if name is not None]


def lists(path: Path) -> Iterator[str]:
    """The module-level names that hold a list of operators, and the functions that contain one."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if any(len(names_in(node)) >= FEWEST for node in ast.walk(statement)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            yield getattr(targets[0], "id", None) or getattr(statement, "name", f"line {statement.lineno}")


def test_lists_of_operators_are_tables_or_have_a_reason() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()} {name}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if not (folder == "backends" and set(path.relative_to(ROOT).parts).intersection(TABLES))
        for name in lists(path)
    }
    assert found == set(REASONS), "a column of the op table or of the backend's table says it for every reader"


@pytest.mark.parametrize("source", ['X = {"add", "sub", "mul", "div", "exp", "log"}',
                                    "X = (a.aten.add.Tensor, *(a.aten.abs, a.aten.exp, a.aten.log, a.aten.sin, "
                                    "a.aten.cos, a.aten.tan))"])  # fmt: skip
def test_lists_are_found(source: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(source)
    assert list(lists(tmp_path / "m.py")) == ["X"]
