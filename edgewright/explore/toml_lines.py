"""Lines of a TOML file: ``tomllib`` parses it, and does not say where a key was."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from edgewright.errors import InputError, MissingError

Key = tuple[object, ...]
_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(#.*)?$")


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The contents of a TOML file. tomllib's own errors name the line."""
    tomllib = _tomllib()
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(name, f"must be TOML: {error}") from error
    return content


def find_line(text: str, key: Key, value: object = None) -> int:
    """The line, from 1, of a key; with ``value``, of that element of its array or inline table.

    The key is a path: ``("models", "small")``, or ``("exclude", 0, "target")`` in an array of tables. A path that is
    not found as such, because an inline table has it, is found by its longest part.

    >>> find_line('a = 1\\n[models]\\nsmall = [\\n"x:y",\\n]', ("models", "small"), "x:y")
    4
    """
    lines = text.splitlines()
    best, matched = 1, 0
    for number, path in _keys(lines):
        common = len(path) if path == key[: len(path)] else 0
        if common > matched:
            best, matched = number, common
    if value is None and matched == len(key):
        return best
    wanted = str(value if value is not None else key[-1])
    after = (n for n in range(best, len(lines) + 1) if wanted in lines[n - 1].partition("#")[0])
    return next(after, best)


def _keys(lines: Sequence[str]) -> Iterator[tuple[int, Key]]:
    """The paths of headers and keys, with their lines."""
    table: Key = ()
    counts: dict[Key, int] = {}
    for number, line in enumerate(lines, 1):
        header = _HEADER.match(line)
        if header is not None and (parts := _parse_key(header[2])):
            table = parts
            if header[1] == "[[":
                counts[parts] = counts.get(parts, -1) + 1
                table = (*parts, counts[parts])
            yield number, table
        elif "=" in line and (parts := _parse_key(line.partition("=")[0])):
            yield number, (*table, *parts)


def _parse_key(text: str) -> Key:
    """The parts of a dotted key, which may be quoted; empty if it is none."""
    tomllib = _tomllib()
    try:
        inner: Any = tomllib.loads(f"{text.strip()} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts: list[object] = []
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        parts.append(name)
    return tuple(parts)


def _tomllib() -> Any:
    try:
        return import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise MissingError("tomli", "is needed to read TOML on Python 3.10", remedy="pip install tomli") from error
