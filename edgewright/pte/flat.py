"""FlatBuffers by description.

A table is a class whose fields say slot, type and limits. The class is the record people use, and the one
description that the checked reader, the writer, the inspector and the mutation tests interpret::

    @table
    class NamedData:
        key: str = slot(0, STRING, required=True)
        segment_index: int = slot(1, U32)

``read_root`` checks everything it touches: bounds, alignment, vtables, lengths, limits, text. It raises
``FormatError`` with the path and byte offset of the field, and reads no more than a fixed multiple of the
buffer's size however its tables overlap.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Union

import flatbuffers
import numpy as np

from edgewright.errors import FormatError, UsageError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # only type checkers need it, and Python 3.10 has none

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


Buffer = Union[bytes, bytearray, memoryview]
T = TypeVar("T")


# ---------------------------------------------------------------------------------------------- the description


@dataclasses.dataclass(frozen=True)
class Scalar:
    name: str
    code: str  # of struct
    size: int
    lo: float
    hi: float


def _integer(name: str, code: str, bits: int, signed: bool) -> Scalar:
    return Scalar(name, code, bits // 8, -(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


BOOL = Scalar("bool", "?", 1, 0, 1)
I8, U8 = _integer("i8", "b", 8, True), _integer("u8", "B", 8, False)
I16, U16 = _integer("i16", "h", 16, True), _integer("u16", "H", 16, False)
I32, U32 = _integer("i32", "i", 32, True), _integer("u32", "I", 32, False)
I64, U64 = _integer("i64", "q", 64, True), _integer("u64", "Q", 64, False)
F32 = Scalar("f32", "f", 4, float("-inf"), float("inf"))
F64 = Scalar("f64", "d", 8, float("-inf"), float("inf"))


@dataclasses.dataclass(frozen=True)
class String:
    pass


STRING = String()


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A vector of bytes, given as a view of the buffer. ``align``: of its first byte in the file."""

    align: int = 1


@dataclasses.dataclass(frozen=True)
class Boxed:
    """A table whose only content is a union: type number in slot 0, value in slot 1. Read as the value itself."""

    name: str
    members: tuple[type, ...]  # the first has number 1
    empty: type | None = None  # a member that may come without a value


@dataclasses.dataclass(frozen=True)
class Vector:
    element: Any  # Scalar | String | Boxed | a table class
    max_len: int = (1 << 32) - 1


@dataclasses.dataclass(frozen=True)
class Slot:
    """One field of a table: where it is, what it holds, and what values the format allows."""

    name: str
    index: int
    type: Any  # Scalar | String | Bytes | Vector | Boxed | a table class
    default: Any
    required: bool
    lo: float | None
    hi: float | None


def slot(
    index: int, type: Any, *, default: Any = None, required: bool = False, lo: float | None = None,
    hi: float | None = None,
) -> Any:  # fmt: skip
    """Describe a field: a default (what an absent field means) or ``required``.

    ``lo`` and ``hi`` bound a scalar, or each element of a vector of scalars.
    """
    spec = Slot("", index, type, default, required, lo, hi)
    if required:
        return dataclasses.field(metadata={"slot": spec})
    return dataclasses.field(default=default, metadata={"slot": spec})


@dataclass_transform(kw_only_default=True, field_specifiers=(slot, dataclasses.field))
def table(cls: type[T]) -> type[T]:
    """Make a record class of a description; ``slots_of`` gives the description back."""
    made = dataclasses.dataclass(kw_only=True, slots=True)(cls)
    specs = [
        dataclasses.replace(f.metadata["slot"], name=f.name)
        for f in dataclasses.fields(made)  # type: ignore[arg-type]
        if "slot" in f.metadata
    ]
    _SLOTS[made] = tuple(sorted(specs, key=lambda s: s.index))
    _EXTRAS[made] = [(f.name, f.default) for f in dataclasses.fields(made) if "slot" not in f.metadata]  # type: ignore[arg-type]
    return made


_SLOTS: dict[type, tuple[Slot, ...]] = {}
_EXTRAS: dict[Any, list[tuple[str, Any]]] = {}  # fields of the record that are not in the file's table


def slots_of(cls: type) -> tuple[Slot, ...]:
    return _SLOTS[cls]


# --------------------------------------------------------------------------------------------------- the reader

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_VTABLE = struct.Struct("<HH")
_ELEMENTS = {
    (scalar.code, count): struct.Struct(f"<{count}{scalar.code}").unpack_from
    for scalar in (BOOL, I8, U8, I32, U32, I64, U64, F64)
    for count in range(17)
}

# Real files have no overlapping tables (only vtables and text are shared), so they are read once; a little sharing
# is fine. What a table becomes in memory is some ten times its size, so this bounds that too.
_BUDGET_FACTOR = 4
_BUDGET_FLOOR = 1 << 16
_PLAN_COST = 64  # bytes of the budget that a vtable takes, because a plan is larger and slower to make

Decoder = Callable[["FlatReader", int], Any]


class _Plan:
    """How to read the tables of one class that use one vtable: a single unpack for all present fields."""

    __slots__ = ("absent", "aligned", "limited", "linked", "missing", "plain", "size", "unpack")

    def __init__(self, cls: Any, slots: tuple[Slot, ...], offsets: list[int], size: int) -> None:
        self.plain: list[tuple[str, int]] = []
        self.linked: list[tuple[str, int, int, Decoder]] = []
        self.limited: list[tuple[Slot, int]] = []
        self.absent = [(s.name, s.default) for s in slots if not offsets[s.index]] + _EXTRAS.get(cls, [])
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
        if not isinstance(spec.type, Scalar):
            self.linked.append((spec.name, position, start, _decoder(spec)))
            return
        self.plain.append((spec.name, position))
        if spec.lo is not None or spec.hi is not None:
            self.limited.append((spec, position))


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
        if width > 1 and (at + 4) % width:
            raise FormatError("fields must be aligned to their size", offset=at)
        if count * width > self.size - at - 4:
            raise FormatError("a vector must lie inside the file", value=f"{count} elements", offset=at)
        self.spend(4 + count * width, at)
        return count, at + 4

    def _raw(self, cls: Any, slots: tuple[Slot, ...], at: int) -> tuple[_Plan, tuple[Any, ...]]:
        if not 0 <= at <= self.size - 4:
            raise FormatError("a table must lie inside the file", value=at)
        vtable = at - _I32.unpack_from(self.view, at)[0]
        plan = self._plans.get((cls, vtable))
        if plan is None:
            plan = self._plans[cls, vtable] = self._plan(cls, slots, vtable)
        if at + plan.size > self.size:
            raise FormatError("a table must lie inside the file", value=f"{plan.size} bytes", offset=at)
        if not plan.aligned[at & 7]:
            raise FormatError("fields must be aligned to their size", offset=at)
        self.spend(plan.size, at)
        return plan, plan.unpack(self.view, at)

    def _plan(self, cls: Any, slots: tuple[Slot, ...], vtable: int) -> _Plan:
        if not 0 <= vtable <= self.size - 4 or vtable % 2:
            raise FormatError("a vtable must lie inside the file, on an even byte", value=vtable)
        length, size = _VTABLE.unpack_from(self.view, vtable)
        if length < 4 or length % 2 or vtable + length > self.size:
            raise FormatError("a vtable's length must be even, 4 or more, inside the file", value=length, offset=vtable)
        if size < 4:
            raise FormatError("a table has at least 4 bytes", value=size, offset=vtable)
        self.spend(length + _PLAN_COST, vtable)
        entries = struct.unpack_from(f"<{(length - 4) // 2}H", self.view, vtable + 4)
        wanted = max((s.index for s in slots), default=-1) + 1
        return _Plan(cls, slots, [*entries[:wanted], *([0] * (wanted - len(entries)))], size)

    def table(self, cls: type[T], at: int) -> T:
        """The table of class ``cls`` at byte ``at``, checked."""
        try:
            plan, raw = self._raw(cls, _SLOTS[cls], at)
            if plan.missing:
                raise FormatError(f"{cls.__name__} must have this field", where=plan.missing)
            record = cls.__new__(cls)
            for name, position in plan.plain:
                setattr(record, name, raw[position])
            for spec, position in plan.limited:
                _check_limits(spec, raw[position])
            for name, position, start, decode in plan.linked:
                try:
                    setattr(record, name, decode(self, at + start + raw[position]))
                except FormatError as error:
                    raise error.inside(name) from None
            for name, default in plan.absent:
                setattr(record, name, default)
        except FormatError as error:
            if error.offset is None:
                error.offset = at
            raise
        return record

    def boxed(self, box: Boxed, at: int) -> Any:
        """The member of the union table at byte ``at``."""
        plan, raw = self._raw(box, _BOX_SLOTS, at)
        number = raw[plan.plain[0][1]] if plan.plain else 0
        if not 1 <= number <= len(box.members):
            raise FormatError(f"{box.name} holds one of {len(box.members)} types", value=number, offset=at)
        cls = box.members[number - 1]
        if plan.linked:
            _, position, start, _ = plan.linked[0]
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
    if not lo <= value <= hi:
        rule = f"must be {lo}" if lo == hi else f"must be {lo} or more" if hi == np.inf else f"must be {lo}..{hi}"
        raise FormatError(rule, where=spec.name, value=value)


_LINK = String()  # stands for "any offset" in the two slots of a union table
_BOX_SLOTS = (Slot("type", 0, U8, 0, False, None, None), Slot("value", 1, _LINK, None, False, None, None))


def _decoder(spec: Slot) -> Decoder:
    """The reader of what an offset field points at."""
    kind = spec.type
    if isinstance(kind, String):
        return FlatReader.string
    if isinstance(kind, Bytes):
        return FlatReader.bytes
    if isinstance(kind, Boxed):
        return lambda reader, at: reader.boxed(kind, at)
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


# --------------------------------------------------------------------------------------------------- the writer


class FlatWriter:
    """Writes records as a flatbuffer; the same records always give the same bytes."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(4096)
        self._vtables: dict[int, dict[Any, Any]] = {}

    def finish(self, record: Any, identifier: bytes, *, size_prefixed: bool = False) -> bytes:
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
                    cells.append((spec, self._linked(spec.type, value)))
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

    def _linked(self, kind: Any, value: Any) -> int:
        if isinstance(kind, String):
            return int(self.builder.CreateSharedString(value))
        if isinstance(kind, Bytes):
            return self._raw(memoryview(value).cast("B"), 1, len(value), kind.align)
        if isinstance(kind, Boxed):
            return self._boxed(kind, value)
        if not isinstance(kind, Vector):
            return self.table(value)
        if isinstance(kind.element, Scalar):
            packed = struct.pack(f"<{len(value)}{kind.element.code}", *value)
            return self._raw(packed, kind.element.size, len(value), kind.element.size)
        links = [self._linked(kind.element, item) for item in value]
        self.builder.StartVector(4, len(links), 4)
        for link in reversed(links):
            self.builder.PrependUOffsetTRelative(link)
        return int(self.builder.EndVector())

    def _boxed(self, box: Boxed, value: Any) -> int:
        cells = [(_BOX_SLOTS[0], box.members.index(type(value)) + 1), (_BOX_SLOTS[1], self.table(value))]
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
