"""FlatBuffers schemas as Python classes.

A table is a class whose fields declare slot, type and limits. The class is both the record type and the schema that
the checked reader, the writer, the inspector and the mutation tests interpret::

    @table
    class NamedData:
        key: str = slot(0, STRING, required=True)
        segment_index: int = slot(1, U32)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # only type checkers need it, and Python 3.10 has none

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


Buffer = Union[bytes, bytearray, memoryview]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A scalar type: its encoding and range."""

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
    """Text."""


STRING = String()


@dataclasses.dataclass(frozen=True)
class Bytes:
    """A vector of bytes, read as a view of the buffer. ``align``: alignment of its first byte in the file."""

    align: int = 1


@dataclasses.dataclass(frozen=True)
class UnionTable:
    """A table whose only content is a union: type number in slot 0, value in slot 1. Read as the value itself."""

    name: str
    members: tuple[type, ...]  # the first has number 1
    empty: type | None = None  # a member that may come without a value


@dataclasses.dataclass(frozen=True, eq=False)
class UnionField:
    """The value of a union inside a table; the field named ``by``, one slot before it, holds the type's number."""

    by: str
    members: Mapping[int, type]


@dataclasses.dataclass(frozen=True)
class Vector:
    """A vector of elements."""

    element: Any  # Scalar | String | Boxed | a table class
    max_len: int = (1 << 32) - 1


@dataclasses.dataclass(frozen=True)
class Slot:
    """A field of a table: its vtable slot, type, default and limits."""

    name: str
    index: int
    type: Any  # Scalar | String | Bytes | Vector | Boxed | Choice | a table class
    default: Any
    required: bool
    lo: float | None
    hi: float | None
    enum: bool = False


def slot(
    index: int, type: Any, *, default: Any = None, required: bool = False, lo: float | None = None,
    hi: float | None = None, enum: bool = False,
) -> Any:  # fmt: skip
    """Describe a field: a default (what an absent field means) or ``required``.

    ``lo`` and ``hi`` bound a scalar, or each element of a vector of scalars. ``enum``: numbers above ``hi`` are no
    damage, but members that a newer release added.
    """
    return Slot("", index, type, default, required, lo, hi, enum)


class Record:
    """Base class of tables: keyword construction, repr and comparison by field."""

    __slots__ = ()

    def __init__(self, **fields: Any) -> None:
        for name, default in FIELDS[type(self)].items():
            value = fields.pop(name, default)
            if value is dataclasses.MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            setattr(self, name, value)
        if fields:
            raise TypeError(f"{type(self).__name__} has no {', '.join(fields)}")

    def __repr__(self) -> str:
        fields = (f"{n}={getattr(self, n)!r}" for n in FIELDS[type(self)] if n not in HIDDEN[type(self)])
        return f"{type(self).__qualname__}({', '.join(fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        uncompared = UNCOMPARED[type(self)]
        return all(getattr(self, n) == getattr(other, n) for n in FIELDS[type(self)] if n not in uncompared)

    __hash__ = None  # type: ignore[assignment]


@dataclass_transform(kw_only_default=True, field_specifiers=(slot, dataclasses.field))
def table(cls: type[T]) -> type[T]:
    """Make a record class from a schema class.

    Dataclasses would do, but creating them takes longer than reading most files.
    """
    attributes = {name: cls.__dict__.get(name, dataclasses.MISSING) for name in cls.__annotations__}
    others = {n: v for n, v in cls.__dict__.items() if n not in attributes and n not in ("__dict__", "__weakref__")}
    record: Any = type(cls.__name__, (Record,), {**others, "__slots__": tuple(attributes)})
    specs = [dataclasses.replace(s, name=name) for name, s in attributes.items() if isinstance(s, Slot)]
    extras = {n: v if isinstance(v, dataclasses.Field) else dataclasses.field(default=v) for n, v in attributes.items()
              if not isinstance(v, Slot)}  # fmt: skip
    SLOTS[record] = tuple(sorted(specs, key=lambda s: s.index))
    EXTRAS[record] = [(name, field.default) for name, field in extras.items()]
    defaults = {s.name: dataclasses.MISSING if s.required else s.default for s in specs}
    FIELDS[record] = {name: defaults[name] if name in defaults else extras[name].default for name in attributes}
    HIDDEN[record] = frozenset(name for name, field in extras.items() if not field.repr)
    UNCOMPARED[record] = frozenset(name for name, field in extras.items() if not field.compare)
    return record  # type: ignore[no-any-return]


FIELDS: dict[type, dict[str, Any]] = {}  # with their defaults
HIDDEN: dict[type, frozenset[str]] = {}
UNCOMPARED: dict[type, frozenset[str]] = {}
SLOTS: dict[type, tuple[Slot, ...]] = {}
EXTRAS: dict[Any, list[tuple[str, Any]]] = {}  # fields of the record that are not in the file's table


def slots_of(cls: type) -> tuple[Slot, ...]:
    return SLOTS[cls]


_LINK = String()  # stands for "any offset" in the two slots of a union table
UNION_TABLE_SLOTS = (Slot("type", 0, U8, 0, False, None, None), Slot("value", 1, _LINK, None, False, None, None))
