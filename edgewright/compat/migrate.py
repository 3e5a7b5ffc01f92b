"""Rewrites a script's imports of ExecuTorch to Edgewright's, by the table; everything else stays as it is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgewright.compat.finder import missing
from edgewright.compat.table import ABSENT, ROOT, TABLE, counterpart, is_own, modules
from edgewright.errors import UsageError

_WIDTH = 100


@dataclass(frozen=True)
class Left:
    """An import that stays, and why."""

    line: int
    name: str
    why: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.name}: {self.why}"


@dataclass
class Migrated:
    """A script after migration, and what of it could not be rewritten."""

    text: str
    left: list[Left] = field(default_factory=list)


def migrate(text: str, name: str = "script") -> Migrated:
    """Rewrite the imports of a script.

    >>> print(migrate("from executorch.exir import to_edge").text)
    from edgewright import to_edge
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UsageError(name, "must be Python", value=f"line {error.lineno}: {error.msg}") from error
    lines = text.splitlines(keepends=True)
    left: list[Left] = []
    for statement, alone in sorted(_imports(tree), key=lambda found: -found[0].lineno):
        made = _rewritten(statement, tree, left)
        if made is not None:
            _replace(lines, statement, made, alone, left)
    return Migrated("".join(lines), sorted(left, key=lambda item: item.line))


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Statements that import something of ExecuTorch's; True with those that are all there is in their block."""
    for node in ast.walk(tree):
        for block in ("body", "orelse", "finalbody"):
            statements = getattr(node, block, None)
            if not isinstance(statements, list):
                continue
            for statement in statements:
                if _concerns(statement):
                    yield statement, len(statements) == 1 and not isinstance(node, ast.Module)


def _concerns(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.level == 0 and (statement.module or "").partition(".")[0] == ROOT
    return isinstance(statement, ast.Import) and any(a.name.partition(".")[0] == ROOT for a in statement.names)


def _rewritten(statement: ast.Import | ast.ImportFrom, tree: ast.Module, left: list[Left]) -> list[str] | None:
    """The statements that take the place of one; None if it stays as it is."""
    if isinstance(statement, ast.Import):
        return _plain_import(statement, tree, left)
    module = str(statement.module)
    groups: dict[str, list[str]] = {}
    for alias in statement.names:
        named = TABLE.get(module, {}) if alias.name == "*" else [alias.name]
        for name in named or ["*"]:
            found = counterpart(module, name)
            if found is not None:
                shown = alias.asname or name
                groups.setdefault(found[0], []).append(_as(found[1], shown))
            elif TABLE.get(f"{module}.{name}") != {}:  # a module that is imported for what it does is left out
                groups.setdefault(module, []).append(_as(name, alias.asname or name))
                left.append(Left(statement.lineno, f"{module}.{name}", _why(module, name)))
    if list(groups) == [module]:
        return None
    return [_from(ours, sorted(names)) for ours, names in groups.items()]


def _plain_import(statement: ast.Import, tree: ast.Module, left: list[Left]) -> list[str] | None:
    made, kept = [], 0
    for alias in statement.names:
        if alias.name.partition(".")[0] != ROOT:
            made.append(f"import {_as(alias.name, alias.asname or alias.name)}")
            continue
        if TABLE.get(alias.name) == {} and alias.asname is None:
            continue
        ours = _whole(alias, tree)
        if ours is None:
            kept += 1
            made.append(f"import {_as(alias.name, alias.asname or alias.name)}")
            left.append(Left(statement.lineno, alias.name, "name what is used: from ... import ..."))
        else:
            made.append(f"import {_as(ours, str(alias.asname))}")
    return None if kept == len(statement.names) else made


def _whole(alias: ast.alias, tree: ast.Module) -> str | None:
    """Our module that has everything a script uses of one of ExecuTorch's, under the same names; or None."""
    if alias.asname is None:
        return None
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == alias.asname
    }
    found = {(counterpart(alias.name, name) or ("", ""))[0] for name in used}
    same = all((counterpart(alias.name, name) or ("", ""))[1] == name for name in used)
    return found.pop() if len(found) == 1 and same and "" not in found else None


def _why(module: str, name: str) -> str:
    if is_own(module):
        return "comes with ExecuTorch's own examples"
    if f"{module}.{name}" in modules() and f"{module}:{name}" not in ABSENT:
        return "is a module: name what is used of it"
    error = missing(module, name) if module in modules() else missing(module)
    return f"{error.rule}. {error.remedy}".strip()


def _as(name: str, shown: str) -> str:
    return name if name == shown else f"{name} as {shown}"


def _from(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _replace(lines: list[str], statement: ast.stmt, made: list[str], alone: bool, left: list[Left]) -> None:
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    before = lines[first].encode()[: statement.col_offset].decode()
    after = lines[last].encode()[statement.end_col_offset :].decode()
    if before.strip() or after.lstrip().startswith(";"):
        left.append(Left(statement.lineno, ast.unparse(statement), "shares its line with another statement"))
        return
    made = made or (["pass"] if alone else [])
    text = "\n".join(f"{before}{line}" for each in made for line in each.split("\n"))
    lines[first : last + 1] = [text + after] if made else []
