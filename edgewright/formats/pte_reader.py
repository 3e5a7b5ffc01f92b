"""``read_program``: reads a ``.pte`` and verifies its structure, then its semantics."""

from __future__ import annotations

import struct

from edgewright.errors import FormatError
from edgewright.files import Source, open_source
from edgewright.formats.container import Container, FileLayout, attach_segments, check_layout
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.schema import Program
from edgewright.formats.verify_program import verify_program

PTE = Container(identifier=b"ET12", magic=b"eh00", length=32, padded=32)
_MIN_SIZE = 64  # the stock runtime probes this many bytes before anything else
_MIN_HEADER = 24


def read_program(source: Source) -> Program:
    """Read and verify a ``.pte``. A path is mapped: constants and blobs are views, never copies.

    Raises ``FormatError`` naming the field and byte for anything that is not a valid program.
    """
    view, name = open_source(source, "program")
    try:
        if len(view) < _MIN_SIZE:
            raise FormatError(f"a program has at least {_MIN_SIZE} bytes", value=len(view))
        PTE.check_identifier(view, ".pte")
        layout = _layout(view)
        end = check_layout(layout, len(view))
        program = read_root(Program, view[: layout.flatbuffer_size])
        program.layout = layout
        attach_segments(program.segments or (), view, layout.segment_base, end)
        verify_program(program)
    except FormatError as error:
        error.file = name
        raise
    return program


def _layout(view: memoryview) -> FileLayout:
    if not PTE.find(view):
        return FileLayout(len(view), 0, 0)
    length, program_size, base = struct.unpack_from("<IQQ", view, 12)
    if not _MIN_HEADER <= length <= len(view):
        raise FormatError(f"the header has {_MIN_HEADER} bytes or more", value=length, where="header", offset=12)
    if program_size < 8 + length:
        raise FormatError("the program must reach past its header", value=program_size, where="header", offset=16)
    size = struct.unpack_from("<Q", view, 32)[0] if length >= PTE.length else None
    return FileLayout(program_size, base, size)
