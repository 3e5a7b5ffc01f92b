"""``write_program``: serializes a Program to a ``.pte`` that stock runtimes load."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import overload

from edgewright.errors import FormatError, UsageError
from edgewright.files import write_file
from edgewright.formats import checked_int
from edgewright.formats.container import SEGMENT_ALIGNMENT, segment_chunks
from edgewright.formats.flatbuffer import Buffer
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.formats.pte_reader import PTE
from edgewright.formats.schema import Program
from edgewright.formats.verify_program import verify_program


@overload
def write_program(program: Program, path: None = None, *, segment_alignment: int = ...) -> bytes: ...
@overload
def write_program(program: Program, path: str | os.PathLike[str], *, segment_alignment: int = ...) -> int: ...
def write_program(
    program: Program, path: str | os.PathLike[str] | None = None, *, segment_alignment: int = SEGMENT_ALIGNMENT
) -> bytes | int:
    """Serialize a program: the bytes, or, with ``path``, the size of the file, which is written atomically.

    Segments keep their offsets. An invalid program is rejected here, not on the device.
    """
    if segment_alignment < 16 or segment_alignment & (segment_alignment - 1):
        raise UsageError("segment_alignment", "must be a power of two, 16 or more", value=segment_alignment)
    chunks = program_chunks(program, segment_alignment)
    return b"".join(chunks) if path is None else write_file(path, chunks)


def program_chunks(program: Program, alignment: int = SEGMENT_ALIGNMENT) -> Iterator[Buffer]:
    """The bytes of a program piece by piece: segments are not copied."""
    segments = program.segments or []
    for index, segment in enumerate(segments):
        if segment.size != len(segment.data):
            rule = f"must hold the {segment.size} bytes its table says"
            raise FormatError(rule, value=len(segment.data), where=f"segments[{index}]")
    verify_program(program)
    flatbuffer = FlatWriter().finish(program, PTE.identifier)
    if not any(s.size for s in segments):
        yield flatbuffer
        return
    size = len(flatbuffer) + PTE.padded
    base = checked_int.align(size, alignment)
    data = max(checked_int.add(s.offset, s.size) for s in segments)
    header = struct.pack("<4sIQQQ", PTE.magic, PTE.length, size, base, data)
    yield PTE.insert(flatbuffer, header)
    yield from segment_chunks(segments, base - size)
