"""ETDump: profiles as stock tools write and read them (``.etdp``)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import overload

from edgewright.errors import FormatError, VersionError
from edgewright.files import Source, open_source, write_file
from edgewright.formats.flatbuffer import (
    BOOL,
    F32,
    F64,
    I8,
    I32,
    I64,
    STRING,
    U32,
    U64,
    Buffer,
    Bytes,
    Vector,
    slot,
    table,
)
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.ir.dtypes import ScalarType

IDENTIFIER = b"ED00"
_PREFIX = 4  # the file starts with its length


@table
class DebugTensor:
    """A tensor dumped to the separate debug buffer, at byte ``offset`` of it."""

    scalar_type: int = slot(0, I8, default=0, lo=0, hi=max(ScalarType))
    sizes: Sequence[int] | None = slot(1, Vector(I64), default=None)
    strides: Sequence[int] | None = slot(2, Vector(I64), default=None)
    offset: int = slot(3, I64, default=0)


@table
class DebugTensorList:
    tensors: list[DebugTensor] | None = slot(0, Vector(DebugTensor), default=None)


@table
class DebugInt:
    int_val: int = slot(0, I64, default=0)


@table
class DebugFloat:
    float_val: float = slot(0, F32, default=0.0)


@table
class DebugDouble:
    double_val: float = slot(0, F64, default=0.0)


@table
class DebugBool:
    bool_val: bool = slot(0, BOOL, default=False)


@table
class DebugValue:
    val: int = slot(0, I8, default=0, lo=0, hi=7)
    tensor: DebugTensor | None = slot(1, DebugTensor, default=None)
    tensor_list: DebugTensorList | None = slot(2, DebugTensorList, default=None)
    int_value: DebugInt | None = slot(3, DebugInt, default=None)
    float_value: DebugFloat | None = slot(4, DebugFloat, default=None)
    double_value: DebugDouble | None = slot(5, DebugDouble, default=None)
    bool_value: DebugBool | None = slot(6, DebugBool, default=None)
    output: DebugBool | None = slot(7, DebugBool, default=None)


@table
class DebugEvent:
    chain_index: int = slot(0, U64, default=0)
    instruction_id: int = slot(1, I32, default=-1)
    debug_entry: DebugValue | None = slot(2, DebugValue, default=None)
    delegate_debug_id_int: int = slot(3, I32, default=-1)
    delegate_debug_id_str: str | None = slot(4, STRING, default=None)
    name: str | None = slot(5, STRING, default=None)


@table
class ProfileEvent:
    """A timed interval, in nanoseconds."""

    name: str | None = slot(0, STRING, default=None)
    chain_index: int = slot(1, I32, default=0)
    instruction_id: int = slot(2, I32, default=-1)
    delegate_debug_id_int: int = slot(3, I32, default=-1)
    delegate_debug_id_str: str | None = slot(4, STRING, default=None)
    delegate_debug_metadata: Buffer | None = slot(5, Bytes(), default=None)
    start_time: int = slot(6, U64, default=0)
    end_time: int = slot(7, U64, default=0)


@table
class AllocationEvent:
    allocator_id: int = slot(0, I32, default=0)
    allocation_size: int = slot(1, U64, default=0)


@table
class Event:
    profile_event: ProfileEvent | None = slot(0, ProfileEvent, default=None)
    allocation_event: AllocationEvent | None = slot(1, AllocationEvent, default=None)
    debug_event: DebugEvent | None = slot(2, DebugEvent, default=None)


@table
class Allocator:
    name: str | None = slot(0, STRING, default=None)


@table
class RunData:
    """One phase: ``Default`` is loading, ``Execute`` a run of a method."""

    name: str | None = slot(0, STRING, default=None)
    bundled_input_index: int = slot(1, I32, default=-1)
    allocators: list[Allocator] | None = slot(2, Vector(Allocator), default=None)
    events: list[Event] | None = slot(3, Vector(Event), default=None)


@table
class ETDump:
    version: int = slot(0, U32, default=0)
    run_data: list[RunData] | None = slot(1, Vector(RunData), default=None)


def read_etdump(source: Source) -> ETDump:
    """Read and verify a profile."""
    view, name = open_source(source, "profile")
    try:
        if len(view) < 16:
            raise FormatError("a profile has at least 16 bytes", value=len(view))
        size = int.from_bytes(view[:_PREFIX], "little")
        if size > len(view) - _PREFIX:
            raise FormatError(f"the length at byte 0 must be at most {len(view) - _PREFIX}", value=size, offset=0)
        dump = read_root(ETDump, view[: _PREFIX + size], at=_PREFIX, identifier=IDENTIFIER)
        if dump.version > 0:
            raise VersionError("this release reads profile version 0", where="version", value=dump.version)
        for run_index, run in enumerate(dump.run_data or ()):
            for index, event in enumerate(run.events or ()):
                if not any((event.profile_event, event.allocation_event, event.debug_event)):
                    raise FormatError("an event must hold something", where=f"run_data[{run_index}].events[{index}]")
    except FormatError as error:
        error.file = name
        raise
    return dump


@overload
def write_etdump(dump: ETDump, path: None = None) -> bytes: ...
@overload
def write_etdump(dump: ETDump, path: str | os.PathLike[str]) -> int: ...
def write_etdump(dump: ETDump, path: str | os.PathLike[str] | None = None) -> bytes | int:
    """Serialize a profile: the bytes, or, with ``path``, the size of the file written there."""
    data = FlatWriter().finish(dump, IDENTIFIER, size_prefixed=True)
    return data if path is None else write_file(path, [data])
