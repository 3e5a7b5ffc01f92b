"""The checked flatbuffer reader, for untrusted files.

``read_root`` verifies everything it reads: bounds, alignment, vtables, vector lengths, value limits and UTF-8. Errors
are ``FormatError`` with the path and byte offset of the field. Several offsets may point at one table, so a small file
could expand without limit; a budget proportional to the file's size bounds the bytes read and with them time and
memory. Tables of one class that share a vtable share a decoding plan, a single ``struct.unpack`` for all fields. See
"FlatBuffers Internals" in the FlatBuffers documentation for the encoding, and its ``Verifier`` for comparison.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np

from edgewright.errors import FormatError, VersionError
from edgewright.formats.executorch_releases import NEWEST, OLDEST
from edgewright.formats.flatbuffer import (
    BOOL,
    EXTRAS,
    F64,
    I8,
    I32,
    I64,
    SLOTS,
    U8,
    U32,
    U64,
    UNION_TABLE_SLOTS,
    Bytes,
    Scalar,
    Slot,
    String,
    UnionField,
    UnionTable,
    Vector,
)

T = TypeVar("T")

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_VTABLE = struct.Struct("<HH")
_ELEMENTS = {
    (scalar.code, count): struct.Struct(f"<{count}{scalar.code}").unpack_from
    for scalar in (BOOL, I8, U8, I32, U32, I64, U64, F64)
    for count in range(17)
}

# Real files have no overlapping tables (only vtables and text are shared), so they are read once; a little sharing
# is fine. A table takes about ten times its size in memory, so this bounds memory too.
_BUDGET_FACTOR = 4
_BUDGET_FLOOR = 1 << 16
_PLAN_COST = 64  # bytes of the budget per vtable, because a plan is larger and slower to build

Decoder = Callable[["FlatReader", int], Any]


class _Plan:
    """How to read the tables of one class that use one vtable: a single unpack for all present fields."""

    __slots__ = ("absent", "aligned", "bounded", "missing", "offsets", "scalars", "size", "unions", "unpack")

    def __init__(self, cls: Any, slots: tuple[Slot, ...], offsets: tuple[int, ...], size: int) -> None:
        self.scalars: list[tuple[str, int]] = []
        self.offsets: list[tuple[str, int, int, Decoder]] = []
        self.bounded: list[tuple[Slot, int]] = []
        self.unions: list[tuple[str, int, int, UnionField]] = []
        self.absent = [(s.name, s.default) for s in slots if not offsets[s.index]] + EXTRAS.get(cls, [])
        self.missing = next((s.name for s in slots if s.required and not offsets[s.index]), None)
        present = sorted((s for s in slots if offsets[s.index]), key=lambda s: offsets[s.index])
        code, end, spans = "<", 0, []
        for position, spec in enumerate(present):
            start = offsets[spec.index]
            kind = spec.type if isinstance(spec.type, Scalar) else U32
            if start < max(end, 4):
                raise FormatError("fields of a table must not overlap", where=spec.name, value=start)
            code += f"{start - end}x{kind.code}"
            end = start + kind.size
            spans.append((start, kind.size))
            self._add(spec, position, start)
        # flatbuffers' Python builder can share a vtable between tables of different sizes, so its length may be short.
        self.size = max(size, end)
        self.unpack = struct.Struct(code).unpack_from
        self.aligned = [at % 4 == 0 and all((at + first) % width == 0 for first, width in spans) for at in range(8)]

    def _add(self, spec: Slot, position: int, start: int) -> None:
        if isinstance(spec.type, UnionField):
            self.unions.append((spec.name, position, start, spec.type))
            return
        if not isinstance(spec.type, Scalar):
            self.offsets.append((spec.name, position, start, _decoder(spec)))
            return
        self.scalars.append((spec.name, position))
        if spec.lo is not None or spec.hi is not None:
            self.bounded.append((spec, position))


def _slots_of(cls: Any) -> tuple[Slot, ...]:
    return UNION_TABLE_SLOTS if isinstance(cls, UnionTable) else SLOTS[cls]


@cache
def _field_count(cls: Any) -> int:
    return max((s.index for s in _slots_of(cls)), default=-1) + 1


@lru_cache(maxsize=1024)
def _plan_of(cls: Any, entries: bytes, size: int) -> _Plan:
    """Cached across files: writers use few layouts per class, so most vtables recur."""
    offsets = struct.unpack(f"<{len(entries) // 2}H", entries)
    return _Plan(cls, _slots_of(cls), (*offsets, *([0] * (_field_count(cls) - len(offsets)))), size)


def newer_release(rule: str, value: object) -> VersionError:
    """The error for something in a file that releases up to now do not write."""
    remedy = f"Files of ExecuTorch {OLDEST} to {NEWEST} are known here: update Edgewright, or export with one of those."
    return VersionError(f"{rule}: the file is of a newer release, or damaged", value=value, remedy=remedy)


class FlatReader:
    """Reads tables of one buffer. ``view`` is the flatbuffer, byte 0 its start."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.size = len(view)
        self.budget = _BUDGET_FACTOR * self.size + _BUDGET_FLOOR
        self._plans: dict[tuple[Any, int], _Plan] = {}
        self._strings: dict[int, str] = {}

    def u32(self, at: int) -> int:
        if not 0 <= at <= self.size - 4:
            raise FormatError("an offset must lie inside the file", value=at)
        if at & 3:
            raise FormatError("fields must be aligned to their size", offset=at)
        return int(_U32.unpack_from(self.view, at)[0])

    def spend(self, amount: int, at: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            rule = f"tables may be read at most {_BUDGET_FACTOR} times over; those of this file overlap too much"
            raise FormatError(rule, offset=at)

    def span(self, at: int, width: int) -> tuple[int, int]:
        """The length and first byte of the vector at ``at``, whose elements are ``width`` bytes each."""
        count = self.u32(at)
        if count and width > 1 and (at + 4) % width:  # ExecuTorch's writer does not align empty ones
            raise FormatError("fields must be aligned to their size", offset=at)
        if count * width > self.size - at - 4:
            raise FormatError("a vector must lie inside the file", value=f"{count} elements", offset=at)
        self.spend(4 + count * width, at)
        return count, at + 4

    def _raw(self, cls: Any, at: int) -> tuple[_Plan, tuple[Any, ...]]:
        if not 0 <= at <= self.size - 4:
            raise FormatError("a table must lie inside the file", value=at)
        vtable = at - _I32.unpack_from(self.view, at)[0]
        plan = self._plans.get((cls, vtable))
        if plan is None:
            plan = self._plans[cls, vtable] = self._plan(cls, vtable)
        if at + plan.size > self.size:
            raise FormatError("a table must lie inside the file", value=f"{plan.size} bytes", offset=at)
        if not plan.aligned[at & 7]:
            raise FormatError("fields must be aligned to their size", offset=at)
        self.spend(plan.size, at)
        return plan, plan.unpack(self.view, at)

    def _plan(self, cls: Any, vtable: int) -> _Plan:
        if not 0 <= vtable <= self.size - 4 or vtable % 2:
            raise FormatError("a vtable must lie inside the file, on an even byte", value=vtable)
        length, size = _VTABLE.unpack_from(self.view, vtable)
        if length < 4 or length % 2 or vtable + length > self.size:
            raise FormatError("a vtable's length must be even, 4 or more, inside the file", value=length, offset=vtable)
        if size < 4:
            raise FormatError("a table has at least 4 bytes", value=size, offset=vtable)
        self.spend(length + _PLAN_COST, vtable)
        end = vtable + min(length, 4 + 2 * _field_count(cls))
        self._reject_newer_fields(cls, end, vtable + length)
        return _plan_of(cls, bytes(self.view[vtable + 4 : end]), size)

    def _reject_newer_fields(self, cls: Any, start: int, end: int) -> None:
        """Raise if a table has a field after those that are known: what it changes cannot be known either."""
        newer = bytes(self.view[start:end])
        if any(newer):
            name = cls.name if isinstance(cls, UnionTable) else cls.__name__
            number = _field_count(cls) + next(i for i, byte in enumerate(newer) if byte) // 2
            raise newer_release(f"{name} has a field that is not known here", f"field {number}")

    def table(self, cls: type[T], at: int) -> T:
        """The table of class ``cls`` at byte ``at``, checked."""
        try:
            plan, raw = self._raw(cls, at)
            if plan.missing:
                raise FormatError(f"{cls.__name__} must have this field", where=plan.missing)
            record = cls.__new__(cls)
            for name, position in plan.scalars:
                setattr(record, name, raw[position])
            for spec, position in plan.bounded:
                _check_limits(spec, raw[position])
            for name, position, start, decode in plan.offsets:
                try:
                    setattr(record, name, decode(self, at + start + raw[position]))
                except FormatError as error:
                    raise error.inside(name) from None
            for name, default in plan.absent:
                setattr(record, name, default)
            for name, position, start, choice in plan.unions:
                try:
                    setattr(
                        record, name, self._union_member(choice, getattr(record, choice.by), at + start + raw[position])
                    )
                except FormatError as error:
                    raise error.inside(name) from None
        except FormatError as error:
            if error.offset is None:
                error.offset = at
            raise
        return record

    def _union_member(self, choice: UnionField, number: int, at: int) -> Any:
        """The member ``number`` of a union, at byte ``at``."""
        if number > max(choice.members):
            raise newer_release("is of a type that is not known here", number)
        if number not in choice.members:
            raise FormatError("must be of a known type", value=number)
        return self.table(choice.members[number], at)

    def union_table(self, box: UnionTable, at: int) -> Any:
        """The member of the union table at byte ``at``."""
        plan, raw = self._raw(box, at)
        number = raw[plan.scalars[0][1]] if plan.scalars else 0
        if number > len(box.members):
            raise newer_release(f"{box.name} is of a type that is not known here", number)
        if number < 1:
            raise FormatError(f"{box.name} holds one of {len(box.members)} types", value=number, offset=at)
        cls = box.members[number - 1]
        if plan.offsets:
            _, position, start, _ = plan.offsets[0]
            return self.table(cls, at + start + raw[position])
        if cls is box.empty:
            return cls()
        raise FormatError(f"{box.name} of type {cls.__name__} must have a value", offset=at)

    def string(self, at: int) -> str:
        text = self._strings.get(at)
        if text is None:
            text = self._strings[at] = self._string(at)
        return text

    def _string(self, at: int) -> str:
        count, first = self.span(at, 1)
        end = first + count
        if end >= self.size or self.view[end]:
            raise FormatError("text must end in a zero byte", offset=at)
        try:
            return str(self.view[first:end], "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError("text must be UTF-8", value=bytes(self.view[first : first + 40]), offset=at) from error

    def bytes(self, at: int) -> memoryview:
        count, first = self.span(at, 1)
        return self.view[first : first + count]

    def scalars(self, spec: Slot, kind: Scalar, at: int) -> tuple[Any, ...]:
        count, first = self.span(at, kind.size)
        unpack = _ELEMENTS.get((kind.code, count))
        items = (unpack or struct.Struct(f"<{count}{kind.code}").unpack_from)(self.view, first)
        if count and (spec.lo is not None or spec.hi is not None):
            for item in (min(items), max(items)):
                _check_limits(spec, item)
        return items

    def items(self, element: Decoder, at: int) -> list[Any]:
        count, first = self.span(at, 4)
        links = struct.unpack_from(f"<{count}I", self.view, first)
        result = []
        for index, link in enumerate(links):
            try:
                result.append(element(self, first + 4 * index + link))
            except FormatError as error:
                raise error.inside(f"[{index}]") from None
        return result


def _check_limits(spec: Slot, value: Any) -> None:
    lo = spec.lo if spec.lo is not None else -np.inf
    hi = spec.hi if spec.hi is not None else np.inf
    if spec.enum and value > hi:
        error = newer_release("is a number that is not known here", value)
        error.where = spec.name
        raise error
    if not lo <= value <= hi:
        rule = f"must be {lo}" if lo == hi else f"must be {lo} or more" if hi == np.inf else f"must be {lo}..{hi}"
        raise FormatError(rule, where=spec.name, value=value)


def _decoder(spec: Slot) -> Decoder:
    """The reader of the target of an offset field."""
    kind = spec.type
    if isinstance(kind, String):
        return FlatReader.string
    if isinstance(kind, Bytes):
        return FlatReader.bytes
    if isinstance(kind, UnionTable):
        return lambda reader, at: reader.union_table(kind, at)
    if not isinstance(kind, Vector):
        return lambda reader, at: reader.table(kind, at)
    element = kind.element
    if isinstance(element, Scalar):
        return lambda reader, at: _at_most(kind.max_len, reader.scalars(spec, element, at))
    decode = _decoder(dataclasses.replace(spec, type=element))
    return lambda reader, at: _at_most(kind.max_len, reader.items(decode, at))


def _at_most(limit: int, items: Any) -> Any:
    if len(items) > limit:
        raise FormatError(f"holds at most {limit} elements", value=len(items))
    return items


def read_root(cls: type[T], view: memoryview, *, at: int = 0, identifier: bytes = b"") -> T:
    """The root table of a flatbuffer whose first byte is ``view[0]`` (``at`` = 4 if it is size-prefixed)."""
    reader = FlatReader(view)
    if identifier and bytes(view[at + 4 : at + 8]) != identifier:
        raise FormatError(f"identifier must be {identifier!r}", value=bytes(view[at + 4 : at + 8]), offset=at + 4)
    return reader.table(cls, at + reader.u32(at))
