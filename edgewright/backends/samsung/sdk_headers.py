"""Parses AI LiteCore's headers for struct layouts and enum values, which its symbols do not reveal.

The interface has two structures and an enumeration. Headers in the SDK take precedence; without headers the default is
the layout implied by known users (ExecuTorch's adaptors, Samsung's LiteRT plugin).
"""

from __future__ import annotations

import ctypes as c
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewright.errors import VendorError

_C_TYPES: dict[str, Any] = {
    "bool": c.c_bool, "char": c.c_char, "int": c.c_int32, "unsigned": c.c_uint32, "unsigned int": c.c_uint32,
    "size_t": c.c_size_t, "float": c.c_float, "double": c.c_double, "long": c.c_int64, "unsigned long": c.c_uint64,
    **{f"{sign}int{bits}_t": getattr(c, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCALARS = ("UNKNOWN", "UINT64", "INT64", "UINT32", "INT32", "FLOAT32", "FLOAT64", "BOOL", "CHAR")


@dataclass
class Interface:
    """Struct layouts, enum values and typedefs of the C interface."""

    param: list[tuple[str, Any]] = field(
        default_factory=lambda: [
            ("size", c.c_uint32),
            ("data", c.c_void_p),
            ("is_scalar", c.c_bool),
            ("type", c.c_int32),
        ]
    )
    buffer: list[tuple[str, Any]] = field(default_factory=lambda: [("addr", c.c_void_p), ("size", c.c_uint64)])
    scalars: dict[str, int] = field(default_factory=lambda: {name: i for i, name in enumerate(_SCALARS)})
    ids: dict[str, Any] = field(
        default_factory=lambda: {"TENSOR_ID_T": c.c_uint32, "NODE_ID_T": c.c_uint32, "DIM_T": c.c_uint32}
    )
    success: dict[str, int] = field(default_factory=lambda: {"GraphWrapperReturn": 0, "GraphGenResult": 0})


def read_interface(folder: Path) -> Interface:
    """The interface declared by the headers of a folder; the default without headers."""
    text = "\n".join(p.read_text(errors="replace") for p in sorted(folder.glob("**/*.h"))) if folder.is_dir() else ""
    text = _COMMENTS.sub(" ", text)
    interface = Interface()
    enums = _enums(text)
    for name in interface.ids:
        interface.ids[name] = _alias(text, name) or interface.ids[name]
    interface.param = (
        _fields(text, "ParamWrapper", {"size", "data", "is_scalar", "type"}, enums, interface.ids) or interface.param
    )
    interface.buffer = _fields(text, "NNCBuffer", {"addr", "size"}, enums, interface.ids) or interface.buffer
    scalars = enums.get("ScalarType", {})
    interface.scalars.update({name: scalars[name] for name in _SCALARS if name in scalars})
    for name in interface.success:
        interface.success[name] = enums.get(name, {}).get("SUCCESS", 0)
    return interface


def _enums(text: str) -> dict[str, dict[str, int]]:
    """Enumerations by name, with the values of their members."""
    enums: dict[str, dict[str, int]] = {}
    pattern = r"enum\s+(?:class\s+|struct\s+)?(\w*)\s*(?::\s*\w+\s*)?\{([^}]*)\}\s*(\w*)"
    for name, body, alias in re.findall(pattern, text):
        members: dict[str, int] = {}
        value = -1
        for item in (i.strip() for i in body.split(",")):
            match = re.fullmatch(r"(\w+)(?:\s*=\s*(-?(?:0[xX][0-9a-fA-F]+|\d+)))?", item)
            if match is None:
                continue
            value = int(match[2], 0) if match[2] else value + 1
            members[match[1]] = value
        enums.update({n: members for n in (name, alias) if n})
    return enums


def _alias(text: str, name: str) -> Any:
    match = re.search(rf"typedef\s+([\w ]+?)\s+{name}\s*;|using\s+{name}\s*=\s*([\w: ]+?)\s*;", text)
    return None if match is None else _C_TYPES.get((match[1] or match[2]).replace("std::", ""))


def _fields(text: str, name: str, expected: set[str], enums: Any, ids: Any) -> list[tuple[str, Any]] | None:
    """The fields of a structure, in order; None if no header has it."""
    match = re.search(rf"struct\s+{name}\s*\{{([^}}]*)\}}", text) or re.search(
        rf"typedef\s+struct\s*\w*\s*\{{([^}}]*)\}}\s*{name}\s*;", text
    )
    if match is None:
        return None
    fields = []
    for item in (i.split("=")[0].strip() for i in match[1].split(";")):
        if item:
            fields.append(_field(item, name, enums, ids))
    if {n for n, _ in fields} != expected:
        listed = ", ".join(n for n, _ in fields)
        raise VendorError(f"AI LiteCore's {name}", f"must have the fields {', '.join(sorted(expected))}", value=listed)
    return fields


def _field(item: str, structure: str, enums: Any, ids: Any) -> tuple[str, Any]:
    declared = re.fullmatch(r"(.*?)([\s*]+)(\w+)", item, re.DOTALL)
    kind, stars, name = (declared[1], declared[2], declared[3]) if declared else ("", "", item)
    kind = re.sub(r"\b(const|enum|struct|std::)\s*", "", kind).strip()
    if "*" in stars or "*" in kind:
        return name, c.c_void_p
    ctype = c.c_int32 if kind in enums else ids.get(kind, _C_TYPES.get(kind))
    if ctype is None:
        raise VendorError(f"AI LiteCore's {structure}", "must have fields of types that C has", value=item)
    return name, ctype
