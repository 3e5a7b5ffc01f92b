"""Provenance of FX nodes: module path and source line in the user's model."""

from __future__ import annotations

import re
import sysconfig
from typing import Any

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)(?:\n\s*(?P<code>.*))?')
_LIBRARY = re.compile(r"site-packages[/\\](torch|torchvision|torchao)[/\\]|[/\\]torch[/\\](nn|_|fx|export)")

_PYTHON = sysconfig.get_paths()["stdlib"]


_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # torch's name for none


def module_path(node: Any) -> str:
    """The dotted path of the module a node belongs to, or ''."""
    stack = getattr(node, "meta", {}).get("nn_module_stack") or {}
    path = next((entry[0] for entry in reversed(list(stack.values())) if entry[0]), "")
    if path == _NO_MODULE:
        return ""
    return re.sub(r"^L\['self'\]\.?", "", str(path))


def frames(node: Any) -> list[tuple[str, int, str, str]]:
    """The stack of a node as (file, line, function, code), outermost first."""
    parsed = parse_frames(getattr(node, "meta", {}).get("stack_trace") or "")
    return [f for f in parsed if not f[0].startswith("<eval_with_key>")]  # generated code of branches and loop bodies


def parse_frames(trace: str) -> list[tuple[str, int, str, str]]:
    """The frames of a printed stack trace."""
    return [(m["file"], int(m["line"]), m["name"], (m["code"] or "").strip()) for m in _FRAME.finditer(trace)]


def is_library(file: str) -> bool:
    """True for files of torch and of the Python standard library, and for code without a file."""
    python = file.startswith(_PYTHON) and "site-packages" not in file
    return python or bool(_LIBRARY.search(file)) or file.startswith("<")


def module_classes(node: Any) -> tuple[str, ...]:
    """The class names of the modules that contain a node, outermost first."""
    stack = getattr(node, "meta", {}).get("nn_module_stack") or {}
    return tuple(str(getattr(entry[1], "__name__", entry[1])).rpartition(".")[2] for entry in stack.values())


def source_line(node: Any) -> str:
    """The line of user code that a node came from, or ''."""
    stack = frames(node)
    user_frames = [f for f in stack if not is_library(f[0])] or stack
    return f"{user_frames[-1][0]}:{user_frames[-1][1]}: {user_frames[-1][3]}" if user_frames else ""


def describe_node(node: Any) -> tuple[str, str]:
    """How errors name a node (`` in module 'a.b'``) and point at its line (``From file:line: code``)."""
    if node is None:
        return "", ""
    path, line = module_path(node), source_line(node)
    return f" in module {path!r}" if path else "", f"From {line}" if line else ""
