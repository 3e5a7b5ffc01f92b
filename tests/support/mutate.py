"""Every number of a file that a hostile hand could change, found by walking it with the description of its format.

``cells(data)`` yields the place of each scalar, vector length, element, offset, vtable entry and header number;
``mutations(data)`` yields the file with each of them set to each of its extremes. The files walked are good ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from edgewright.backends.xnnpack.nodes import XNNGraph
from edgewright.formats import bpte, etdump, ptd, schema
from edgewright.formats.flatbuffer import Bytes, Scalar, String, UnionField, UnionTable, Vector, slots_of

_FLOATS = (0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e308, 5e-324)
_MAGIC = {b"ET12": "pte", b"FT01": "ptd", b"BP08": "bpte"}
_ROOTS: dict[str, tuple[type, int]] = {  # the root table, and where its offset is
    "pte": (schema.Program, 0),
    "ptd": (ptd.FlatTensor, 0),
    "bpte": (bpte.BundledProgramTable, 0),
    "etdp": (etdump.ETDump, 4),
}
_HEADERS: dict[str, dict[str, tuple[int, str]]] = {
    "pte": {"magic": (8, "I"), "length": (12, "I"), "program_size": (16, "Q"), "base": (24, "Q"), "size": (32, "Q")},
    "ptd": {"magic": (8, "I"), "length": (12, "I"), "start": (16, "Q"), "flatbuffer": (24, "Q"), "base": (32, "Q"),
            "size": (40, "Q")},
    "bpte": {},
    "etdp": {"prefix": (0, "I")},
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One number of a file: where, how it is packed, and what it is for."""

    path: str
    kind: str  # scalar | length | element | offset | vtable | header | text
    at: int
    code: str

    def get(self, data: bytes | bytearray) -> Any:
        return struct.unpack_from("<" + self.code, data, self.at)[0]

    def put(self, data: bytes, value: Any) -> bytes:
        changed = bytearray(data)
        struct.pack_into("<" + self.code, changed, self.at, value)
        return bytes(changed)


def format_of(data: bytes) -> str:
    """The format of a good file, by its identifier."""
    return _MAGIC.get(bytes(data[4:8]), "etdp")


def cells(data: bytes, start: int = 0, path: str = "") -> Iterator[Cell]:
    """All cells of the file at byte ``start`` of ``data``; of a bundle, also those of the program in it."""
    file = memoryview(data)[start:]
    root, at = _ROOTS[format_of(bytes(file[:8]))]
    for cell in _Walker(bytes(file)).file(root, at):
        yield Cell(path + cell.path, cell.kind, start + cell.at, cell.code)
    if root is bpte.BundledProgramTable:
        # The length prefix of the embedded program ends where the program starts.
        inner = bytes(file).index(b"ET12", 8) - 4
        yield from cells(data, start + inner, path + "program:")


def blob_cells(data: bytes) -> Iterator[Cell]:
    """All cells of an XNNPACK blob."""
    start = struct.unpack_from("<I", data, 10)[0]
    for name, at, code in (
        ("length", 8, "H"),
        ("start", 10, "I"),
        ("size", 14, "I"),
        ("data", 18, "I"),
        ("bytes", 22, "Q"),
    ):
        yield Cell(f"header.{name}", "header", at, code)
    walker = _Walker(data[start:])
    for cell in walker.table(XNNGraph, walker.u32(0), ""):
        yield Cell(cell.path, cell.kind, start + cell.at, cell.code)


class _Walker:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.vtables: set[int] = set()

    def u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.data, at)[0])

    def file(self, root: type, at: int) -> Iterator[Cell]:
        yield Cell("header.root", "header", at, "I")
        yield Cell("header.identifier", "header", at + 4, "I")
        if self.data[8:12] in (b"eh00", b"FH01") or at:
            for name, (place, code) in _HEADERS[format_of(self.data)].items():
                yield Cell(f"header.{name}", "header", place, code)
        yield from self.table(root, at + self.u32(at), "")

    def fields(self, at: int, path: str) -> Iterator[Cell | list[int]]:
        """The cells of a table's vtable, then the positions of its fields (0: absent)."""
        yield Cell(f"{path}.vtable", "offset", at, "i")
        vtable = at - struct.unpack_from("<i", self.data, at)[0]
        length = struct.unpack_from("<H", self.data, vtable)[0]
        offsets = struct.unpack_from(f"<{(length - 4) // 2}H", self.data, vtable + 4)
        if vtable not in self.vtables:  # tables share them
            self.vtables.add(vtable)
            for index in range(length // 2):
                yield Cell(f"{path}.vtable[{index}]", "vtable", vtable + 2 * index, "H")
        yield [at + offset if offset else 0 for offset in offsets]

    def table(self, cls: type, at: int, path: str) -> Iterator[Cell]:
        for found in self.fields(at, path):
            if isinstance(found, Cell):
                yield found
                continue
            for spec in slots_of(cls):
                if spec.index < len(found) and found[spec.index]:
                    name = f"{path}.{spec.name}" if path else spec.name
                    kind = spec.type
                    if isinstance(kind, UnionField):
                        kind = kind.members[self.data[found[spec.index - 1]]]
                    yield from self.field(kind, found[spec.index], name)

    def field(self, kind: Any, at: int, path: str, role: str = "scalar") -> Iterator[Cell]:
        """A scalar, or the offset at ``at`` and all behind it."""
        if isinstance(kind, Scalar):
            yield Cell(path, role, at, "B" if kind.code == "?" else kind.code)
            return
        yield Cell(path, "offset", at, "I")
        target = at + self.u32(at)
        if isinstance(kind, String | Bytes):
            yield from self.text(target, path)
        elif isinstance(kind, Vector):
            yield from self.vector(kind, target, path)
        elif isinstance(kind, UnionTable):
            yield from self.boxed(kind, target, path)
        else:
            yield from self.table(kind, target, path)

    def text(self, at: int, path: str) -> Iterator[Cell]:
        yield Cell(f"{path}.length", "length", at, "I")
        count = self.u32(at)
        for place in sorted({at + 4, at + 3 + count, at + 4 + count}):
            if place < len(self.data):
                yield Cell(f"{path}.byte[{place - at - 4}]", "text", place, "B")

    def vector(self, kind: Vector, at: int, path: str) -> Iterator[Cell]:
        yield Cell(f"{path}.length", "length", at, "I")
        width = kind.element.size if isinstance(kind.element, Scalar) else 4
        for index in range(self.u32(at)):
            yield from self.field(kind.element, at + 4 + width * index, f"{path}[{index}]", "element")

    def boxed(self, kind: UnionTable, at: int, path: str) -> Iterator[Cell]:
        for found in self.fields(at, path):
            if isinstance(found, Cell):
                yield found
                continue
            yield Cell(f"{path}.type", "scalar", found[0], "B")
            if len(found) > 1 and found[1]:
                member = kind.members[self.data[found[0]] - 1]
                yield Cell(f"{path}.value", "offset", found[1], "I")
                yield from self.table(member, found[1] + self.u32(found[1]), f"{path}<{member.__name__}>")


def extremes(cell: Cell, size: int) -> list[Any]:
    """What to set a cell to: 0, 1, the largest, one less, the sign bit; for places in the file also its edges."""
    if cell.code in "fd":
        return [v if cell.code == "d" else min(max(v, -3e38), 3e38) if abs(v) < float("inf") else v for v in _FLOATS]
    bits = 8 * struct.calcsize("<" + cell.code)
    if cell.code.islower():
        top = (1 << bits - 1) - 1
        values = [0, 1, top, top - 1, -1, -top - 1, 2]
    else:
        top = (1 << bits) - 1
        values = [0, 1, top, top - 1, 1 << bits - 1, 2]
    if cell.kind in ("offset", "length", "header"):
        edge = size - cell.at
        values += [v for v in (4, edge - 1, edge, edge + 4, -cell.at) if -top - 1 <= v <= top]
        values = [v for v in values if v >= 0 or cell.code.islower()]
        if bits == 64:
            values += [top + 1 - v for v in (16, 64, 128, size)]
    return values


def mutations(data: bytes, found: Iterable[Cell] | None = None) -> Iterator[tuple[str, bytes]]:
    """Every cell of the file at every extreme, one at a time, with a label that says which."""
    for cell in cells(data) if found is None else found:
        now = cell.get(data)
        for value in dict.fromkeys(extremes(cell, len(data))):
            if value != now:
                yield f"{cell.path}@{cell.at:#x} {cell.kind} {now} -> {value}", cell.put(data, value)
