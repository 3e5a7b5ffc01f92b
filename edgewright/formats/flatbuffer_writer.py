"""The writer of flatbuffers, on the builder of the ``flatbuffers`` package."""

from __future__ import annotations

import struct
from typing import Any

import flatbuffers

from edgewright.errors import UsageError
from edgewright.formats.flatbuffer import (
    UNION_TABLE_SLOTS,
    Buffer,
    Bytes,
    Scalar,
    Slot,
    String,
    UnionField,
    UnionTable,
    Vector,
    slots_of,
)


class FlatWriter:
    """Writes records as a flatbuffer; the same records always give the same bytes."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(4096)
        self._vtables: dict[int, dict[Any, Any]] = {}

    def finish(self, record: Any, identifier: bytes | None, *, size_prefixed: bool = False) -> bytes:
        root = self.table(record)
        end = self.builder.FinishSizePrefixed if size_prefixed else self.builder.Finish
        end(root, file_identifier=identifier)
        return bytes(self.builder.Output())

    def table(self, record: Any) -> int:
        specs = slots_of(type(record))
        cells: list[tuple[Slot, Any]] = []
        for spec in specs:
            value = getattr(record, spec.name)
            try:
                if isinstance(spec.type, Scalar):
                    _check_scalar(spec, value)
                    if value != spec.default or str(value) == "-0.0":
                        cells.append((spec, value))
                elif value is not None:
                    if (
                        isinstance(spec.type, UnionField)
                        and type(value) is not spec.type.members[getattr(record, spec.type.by)]
                    ):
                        raise TypeError(f"{spec.type.by} says otherwise")
                    cells.append((spec, self._write_offset(spec.type, value)))
                elif spec.required:
                    raise UsageError(f"{type(record).__name__}.{spec.name}", "must be given")
            except (TypeError, AttributeError, KeyError, struct.error) as error:
                subject = f"{type(record).__name__}.{spec.name}"
                raise UsageError(subject, f"must hold {spec.type}", value=value) from error
        return self._fields(1 + max((s.index for s in specs), default=-1), cells)

    def _fields(self, count: int, cells: list[tuple[Slot, Any]]) -> int:
        builder = self.builder
        builder.StartObject(count)
        # Widest first: no padding between fields.
        for spec, value in sorted(cells, key=lambda c: -c[0].type.size if isinstance(c[0].type, Scalar) else -4):
            if isinstance(spec.type, Scalar):
                builder.Prep(spec.type.size, 0)
                builder.head -= spec.type.size
                struct.pack_into("<" + spec.type.code, builder.Bytes, builder.head, value)
            else:
                builder.PrependUOffsetTRelative(value)
            builder.Slot(spec.index)
        # The builder shares vtables by field offsets alone, which gives tables of another size a false length.
        builder.vtables = self._vtables.setdefault(builder.Offset() - builder.objectEnd, {})
        return int(builder.EndObject())

    def _write_offset(self, kind: Any, value: Any) -> int:
        if isinstance(kind, String):
            return int(self.builder.CreateSharedString(value))
        if isinstance(kind, Bytes):
            return self._raw(memoryview(value).cast("B"), 1, len(value), kind.align)
        if isinstance(kind, UnionTable):
            return self._write_union_table(kind, value)
        if not isinstance(kind, Vector):
            return self.table(value)
        if isinstance(kind.element, Scalar):
            packed = struct.pack(f"<{len(value)}{kind.element.code}", *value)
            return self._raw(packed, kind.element.size, len(value), kind.element.size)
        links = [self._write_offset(kind.element, item) for item in value]
        self.builder.StartVector(4, len(links), 4)
        for link in reversed(links):
            self.builder.PrependUOffsetTRelative(link)
        return int(self.builder.EndVector())

    def _write_union_table(self, box: UnionTable, value: Any) -> int:
        cells = [(UNION_TABLE_SLOTS[0], box.members.index(type(value)) + 1), (UNION_TABLE_SLOTS[1], self.table(value))]
        return self._fields(2, cells)

    def _raw(self, data: Buffer, width: int, count: int, align: int) -> int:
        builder = self.builder
        builder.StartVector(width, count, align)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())


def _check_scalar(spec: Slot, value: Any) -> None:
    lo = spec.type.lo if spec.lo is None else spec.lo
    hi = spec.type.hi if spec.hi is None else spec.hi
    if not (lo <= value <= hi or value != value):
        raise UsageError(spec.name, f"must be {lo}..{hi}", value=value)
