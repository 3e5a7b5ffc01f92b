"""Where a node came from, in the user's own words: module path and source line."""

from __future__ import annotations

import re
import sysconfig
from typing import Any

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)(?:\n\s*(?P<code>.*))?')
_LIBRARY = re.compile(r"site-packages[/\\](torch|torchvision|torchao)[/\\]|[/\\]torch[/\\](nn|_|fx|export)")

_PYTHON = sysconfig.get_paths()["stdlib"]


def module_path(node: Any) -> str:
    """The dotted path of the module a node belongs to, or ''."""
    stack = getattr(node, "meta", {}).get("nn_module_stack") or {}
    path = next((entry[0] for entry in reversed(list(stack.values())) if entry[0]), "")
    return re.sub(r"^L\['self'\]\.?", "", str(path))


def frames(node: Any) -> list[tuple[str, int, str, str]]:
    """The stack of a node as (file, line, function, code), outermost first."""
    found = parse_frames(getattr(node, "meta", {}).get("stack_trace") or "")
    return [f for f in found if not f[0].startswith("<eval_with_key>")]  # torch's own, of branches and loop bodies


def parse_frames(trace: str) -> list[tuple[str, int, str, str]]:
    """The frames in a printed stack."""
    return [(m["file"], int(m["line"]), m["name"], (m["code"] or "").strip()) for m in _FRAME.finditer(trace)]


def is_library(file: str) -> bool:
    """True for files of torch and of Python itself, and for code that has no file."""
    python = file.startswith(_PYTHON) and "site-packages" not in file
    return python or bool(_LIBRARY.search(file)) or file.startswith("<")


def module_classes(node: Any) -> tuple[str, ...]:
    """The class names of the modules a node is in, outermost first."""
    stack = getattr(node, "meta", {}).get("nn_module_stack") or {}
    return tuple(str(getattr(entry[1], "__name__", entry[1])).rpartition(".")[2] for entry in stack.values())


def source_line(node: Any) -> str:
    """The user's own line that a node came from, or ''."""
    found = frames(node)
    own = [f for f in found if not is_library(f[0])] or found
    return f"{own[-1][0]}:{own[-1][1]}: {own[-1][3]}" if own else ""


def describe_node(node: Any) -> tuple[str, str]:
    """How errors name a node (`` in module 'a.b'``) and point at its line (``From file:line: code``)."""
    if node is None:
        return "", ""
    path, line = module_path(node), source_line(node)
    return f" in module {path!r}" if path else "", f"From {line}" if line else ""
