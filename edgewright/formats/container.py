"""The container of ``.pte`` and ``.ptd``: a flatbuffer with an extended header at byte 8, followed by data segments."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.errors import FormatError
from edgewright.formats import checked_int
from edgewright.formats.flatbuffer import Buffer

SEGMENT_ALIGNMENT = 128
_HEAD = 8  # root offset and identifier


class Chunks:
    """A sequence of byte chunks with alignment padding, without copies."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.size = 0

    def add(self, data: Any, alignment: int) -> int:
        """Append ``data`` at the next aligned offset, which is returned."""
        start = checked_int.align(self.size, alignment)
        self.parts += [bytes(start - self.size), data] if start > self.size else [data]
        self.size = start + len(data)
        return start

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)


@dataclass(frozen=True)
class FileLayout:
    """Offsets of a file's parts. ``data_size`` is None in older headers that lack it."""

    flatbuffer_size: int
    segment_base: int
    data_size: int | None


@dataclass(frozen=True)
class Container:
    """A format's identifier, and the magic and length of its extended header."""

    identifier: bytes
    magic: bytes
    length: int  # as written
    padded: int  # bytes inserted: a multiple of every alignment inside the flatbuffer

    def find(self, view: memoryview) -> bool:
        return bytes(view[_HEAD : _HEAD + 4]) == self.magic

    def check_identifier(self, view: memoryview, format_name: str) -> None:
        identifier = bytes(view[4:8])
        if len(view) < 8 or identifier != self.identifier:
            rule = f"a {format_name} file has the identifier {self.identifier.decode()!r} at byte 4"
            raise FormatError(rule, value=identifier, offset=4, remedy=_looks_like(view))

    def insert(self, flatbuffer: bytes, header: bytes) -> bytes:
        """The flatbuffer with ``header`` (magic, length and numbers) inserted at byte 8."""
        root = struct.unpack_from("<I", flatbuffer)[0] + self.padded
        return b"".join(
            (struct.pack("<I", root), flatbuffer[4:_HEAD], header.ljust(self.padded, b"\0"), flatbuffer[_HEAD:])
        )


def check_layout(layout: FileLayout, file_size: int) -> int:
    """Check a header's numbers against the file; return the offset after the last segment."""
    checked_int.check_range(0, layout.flatbuffer_size, file_size, "the program")
    if not layout.segment_base:
        if layout.data_size:
            raise FormatError("segment data needs a segment base offset", value=layout.data_size, where="header")
        return 0
    if layout.segment_base < layout.flatbuffer_size:
        raise FormatError("segments must come after the program", value=layout.segment_base, where="header")
    if layout.data_size is None:
        checked_int.check_range(layout.segment_base, 0, file_size, "the file's segment area")
        return file_size
    checked_int.check_range(layout.segment_base, layout.data_size, file_size, "the file's segment area")
    return layout.segment_base + layout.data_size


def attach_segments(segments: Sequence[Any], view: memoryview, base: int, end: int) -> None:
    """Attach to each DataSegment a view of its bytes, which must be in the segment area ``base..end``."""
    for index, segment in enumerate(segments):
        try:
            checked_int.check_range(segment.offset, segment.size, end - base, "a segment")
        except FormatError as error:
            raise error.inside(f"segments[{index}]") from None
        start = base + segment.offset
        segment.data = view[start : start + segment.size]
    _find_parts(segments)


def _find_parts(segments: Sequence[Any]) -> None:
    """Mark segments that another one contains."""
    outer: Any = None
    for segment in sorted(segments, key=lambda s: (s.offset, -s.size)):
        if outer is not None and segment.size and segment.offset + segment.size <= outer.offset + outer.size:
            segment.outer = outer
        else:
            outer = segment


def segment_chunks(segments: Sequence[Any], padding: int) -> Iterator[Buffer]:
    """The bytes after the flatbuffer: padding to the base, then the segments at their offsets, those inside another
    with it."""
    yield b"\0" * padding
    at = 0
    for segment in sorted((s for s in segments if s.size and s.outer is None), key=lambda s: s.offset):
        if segment.offset < at:
            raise FormatError("segments must not overlap", value=segment.offset)
        yield b"\0" * (segment.offset - at)
        yield from segment.data if isinstance(segment.data, Chunks) else (segment.data,)
        at = segment.offset + segment.size


_MAGIC = {
    b"ET12": "This is an ExecuTorch program (.pte).",
    b"FT01": "This is a data file (.ptd): pass it as data=.",
    b"BP08": "This is a bundled program (.bpte): use `edgewright verify`.",
    b"TFL3": "This is a TensorFlow Lite model; export the PyTorch model instead.",
    b"TOSA": "This is a TOSA graph.",
}


def _looks_like(view: memoryview) -> str:
    if bytes(view[4:8]) in _MAGIC:
        return _MAGIC[bytes(view[4:8])]
    if bytes(view[8:12]) == b"ED00":
        return "This is a profile (ETDump, .etdp)."
    if bytes(view[:4]) == b"PK\x03\x04":
        return "This is a zip archive (a .pt, .pth or .pt2 checkpoint?): export and compile it first."
    if bytes(view[:4]) == b"GGUF":
        return "This is a checkpoint of a language model (GGUF): edgewright llm compile MODEL.gguf -o MODEL.pte."
    return "Pass a file written by Edgewright or ExecuTorch."
