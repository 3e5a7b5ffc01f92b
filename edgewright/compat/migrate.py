"""Rewrites a script's ExecuTorch imports to Edgewright's by the table; all other text is unchanged."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewright.compat.finder import missing_error
from edgewright.compat.table import ROOT, counterpart, is_executorch_only, modules, table
from edgewright.errors import UsageError

_WIDTH = 100


@dataclass(frozen=True)
class Unmigrated:
    """An import that was not rewritten, and the reason."""

    line: int
    name: str
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.name}: {self.why}"


@dataclass
class MigrationResult:
    """The rewritten script, and the imports that could not be rewritten."""

    text: str
    left: list[Unmigrated] = field(default_factory=list)


def migrate(text: str, name: str = "script") -> MigrationResult:
    """Rewrite the imports of a script.

    >>> print(migrate("from executorch.exir import to_edge").text)
    from edgewright import to_edge
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UsageError(name, "must be Python", value=f"line {error.lineno}: {error.msg}") from error
    lines = text.splitlines(keepends=True)
    unmigrated: list[Unmigrated] = []
    for statement, only_statement in sorted(_imports(tree), key=lambda entry: -entry[0].lineno):
        replacement = _rewrite(statement, tree, unmigrated)
        if replacement is not None:
            _replace(lines, statement, replacement, only_statement, unmigrated)
    return MigrationResult("".join(lines), sorted(unmigrated, key=lambda item: item.line))


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Statements that import from ExecuTorch, and whether each is the only statement of its block."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if not isinstance(statements, list):
                continue
            for statement in statements:
                if _imports_executorch(statement):
                    yield statement, len(statements) == 1 and not isinstance(node, ast.Module)


def _imports_executorch(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.level == 0 and (statement.module or "").partition(".")[0] == ROOT
    return isinstance(statement, ast.Import) and any(a.name.partition(".")[0] == ROOT for a in statement.names)


def _rewrite(
    statement: ast.Import | ast.ImportFrom, tree: ast.Module, unmigrated: list[Unmigrated]
) -> list[str] | None:
    """Replacement statements, or None to keep the statement."""
    if isinstance(statement, ast.Import):
        return _plain_import(statement, tree, unmigrated)
    module = str(statement.module)
    groups: dict[str, list[str]] = {}
    for alias in statement.names:
        imported = table().names.get(module, {}) if alias.name == "*" else [alias.name]
        for name in imported or ["*"]:
            target = counterpart(module, name)
            if target is not None:
                bound_name = alias.asname or name
                groups.setdefault(target[0], []).append(_import_clause(target[1], bound_name))
            elif table().names.get(f"{module}.{name}") != {}:  # modules imported for side effects are dropped
                groups.setdefault(module, []).append(_import_clause(name, alias.asname or name))
                unmigrated.append(Unmigrated(statement.lineno, f"{module}.{name}", _reason(module, name)))
    if list(groups) == [module]:
        return None
    return [_from_import(target_module, sorted(names)) for target_module, names in groups.items()]


def _plain_import(statement: ast.Import, tree: ast.Module, unmigrated: list[Unmigrated]) -> list[str] | None:
    replacement, unchanged = [], 0
    for alias in statement.names:
        if alias.name.partition(".")[0] != ROOT:
            replacement.append(f"import {_import_clause(alias.name, alias.asname or alias.name)}")
            continue
        if table().names.get(alias.name) == {} and alias.asname is None:
            continue
        module = _replacement_module(alias, tree)
        if module is None:
            unchanged += 1
            replacement.append(f"import {_import_clause(alias.name, alias.asname or alias.name)}")
            unmigrated.append(Unmigrated(statement.lineno, alias.name, "name what is used: from ... import ..."))
        else:
            replacement.append(f"import {_import_clause(module, str(alias.asname))}")
    return None if unchanged == len(statement.names) else replacement


def _replacement_module(alias: ast.alias, tree: ast.Module) -> str | None:
    """The Edgewright module with all names a script uses of a module, or None."""
    if alias.asname is None:
        return None
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == alias.asname
    }
    targets = {(counterpart(alias.name, name) or ("", ""))[0] for name in used}
    same = all((counterpart(alias.name, name) or ("", ""))[1] == name for name in used)
    return targets.pop() if len(targets) == 1 and same and "" not in targets else None


def _reason(module: str, name: str) -> str:
    if is_executorch_only(module):
        return "comes with ExecuTorch's own examples"
    if f"{module}.{name}" in modules() and f"{module}:{name}" not in table().absent:
        return "is a module: name what is used of it"
    error = missing_error(module, name) if module in modules() else missing_error(module)
    return f"{error.rule}. {error.remedy}".strip()


def _import_clause(name: str, bound_name: str) -> str:
    return name if name == bound_name else f"{name} as {bound_name}"


def _from_import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _replace(
    lines: list[str], statement: ast.stmt, replacement: list[str], only_statement: bool, unmigrated: list[Unmigrated]
) -> None:
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    before = lines[first].encode()[: statement.col_offset].decode()
    after = lines[last].encode()[statement.end_col_offset :].decode()
    if before.strip() or after.lstrip().startswith(";"):
        unmigrated.append(
            Unmigrated(statement.lineno, ast.unparse(statement), "shares its line with another statement")
        )
        return
    replacement = replacement or (["pass"] if only_statement else [])
    text = "\n".join(f"{before}{line}" for statement_text in replacement for line in statement_text.split("\n"))
    lines[first : last + 1] = [text + after] if replacement else []
