"""``.ptd``: named tensors and blobs in a separate file, shared by programs."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from edgewright.errors import FormatError, VersionError
from edgewright.files import Source, open_source, write_file
from edgewright.formats import checked_int
from edgewright.formats.container import (
    SEGMENT_ALIGNMENT,
    Container,
    FileLayout,
    attach_segments,
    check_layout,
    segment_chunks,
)
from edgewright.formats.flatbuffer import I8, I32, STRING, U8, U32, Buffer, Vector, slot, table
from edgewright.formats.flatbuffer_reader import read_root
from edgewright.formats.flatbuffer_writer import FlatWriter
from edgewright.formats.schema import MAX_RANK, DataSegment
from edgewright.ir.dtypes import ScalarType, to_scalar_type

PTD = Container(identifier=b"FT01", magic=b"FH01", length=40, padded=48)


@table
class TensorLayout:
    scalar_type: int = slot(0, I8, default=0, lo=0, hi=max(ScalarType), enum=True)
    sizes: Sequence[int] = slot(1, Vector(I32, MAX_RANK), required=True, lo=0)
    dim_order: Sequence[int] = slot(2, Vector(U8, MAX_RANK), required=True, hi=MAX_RANK - 1)


@table
class NamedTensor:
    key: str = slot(0, STRING, required=True)
    segment_index: int = slot(1, U32, default=0)
    tensor_layout: TensorLayout | None = slot(2, TensorLayout, default=None)


@table
class FlatTensor:
    version: int = slot(0, U32, default=0)
    segments: list[DataSegment] = slot(1, Vector(DataSegment), required=True)
    named_data: list[NamedTensor] = slot(2, Vector(NamedTensor), required=True)


@dataclass(frozen=True)
class PtdEntry:
    """One named item: its bytes, and its layout if it is a tensor."""

    data: Buffer
    layout: TensorLayout | None = None


def read_data(source: Source) -> dict[str, PtdEntry]:
    """Read and verify a ``.ptd``; data are views of the file."""
    view, name = open_source(source, "data")
    try:
        PTD.check_identifier(view, ".ptd")
        root = _read(view)
        return {
            item.key: PtdEntry(root.segments[item.segment_index].data, item.tensor_layout) for item in root.named_data
        }
    except FormatError as error:
        error.file = name
        raise


def _read(view: memoryview) -> FlatTensor:
    if len(view) < 8 + PTD.length or not PTD.find(view):
        raise FormatError(f"a .ptd has the header {PTD.magic.decode()!r} at byte 8", value=bytes(view[8:12]), offset=8)
    length, start, size, base, data_size = struct.unpack_from("<IQQQQ", view, 12)
    if length < PTD.length:
        raise FormatError(f"the header has {PTD.length} bytes or more", value=length, where="header", offset=12)
    layout = FileLayout(checked_int.add(start, size), base, data_size)
    end = check_layout(layout, len(view))
    root = read_root(FlatTensor, view[: layout.flatbuffer_size])
    attach_segments(root.segments, view, base, end)
    _verify(root)
    return root


def _verify(root: FlatTensor) -> None:
    if root.version > 0:
        raise VersionError("this release reads .ptd version 0", where="version", value=root.version)
    keys: set[str] = set()
    for index, item in enumerate(root.named_data):
        where = f"named_data[{index}]"
        if not item.segment_index < len(root.segments):
            rule = f"must be one of the {len(root.segments)} segments"
            raise FormatError(rule, where=f"{where}.segment_index", value=item.segment_index)
        if item.key in keys:
            raise FormatError("keys must differ", where=f"{where}.key", value=item.key)
        keys.add(item.key)
        if item.tensor_layout is not None:
            _verify_layout(item.tensor_layout, root.segments[item.segment_index].size, f"{where}.tensor_layout")


def _verify_layout(layout: TensorLayout, available: int, where: str) -> None:
    if sorted(layout.dim_order) != list(range(len(layout.sizes))):
        raise FormatError("must be an order of the dimensions", where=f"{where}.dim_order", value=layout.dim_order)
    try:
        needed = checked_int.tensor_bytes(layout.scalar_type, layout.sizes)
    except FormatError as error:
        raise error.inside(where) from None
    if needed > available:
        raise FormatError(f"the tensor needs {needed} bytes of its segment", where=where, value=available)


def tensor_entry(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> PtdEntry:
    """An entry for a contiguous array."""
    data = np.ascontiguousarray(array)
    layout = TensorLayout(
        scalar_type=int(to_scalar_type(data.dtype)), sizes=data.shape, dim_order=tuple(range(data.ndim))
    )
    return PtdEntry(data.tobytes(), layout)


@overload
def write_data(entries: Mapping[str, PtdEntry], path: None = None, *, alignment: int = ...) -> bytes: ...
@overload
def write_data(entries: Mapping[str, PtdEntry], path: str | os.PathLike[str], *, alignment: int = ...) -> int: ...
def write_data(
    entries: Mapping[str, PtdEntry], path: str | os.PathLike[str] | None = None, *, alignment: int = SEGMENT_ALIGNMENT
) -> bytes | int:
    """Serialize a ``.ptd``: bytes, or, with ``path``, the size of the file written there. Equal data is stored once."""
    chunks = _chunks(entries, alignment)
    return b"".join(chunks) if path is None else write_file(path, chunks)


def _chunks(entries: Mapping[str, PtdEntry], alignment: int) -> Iterator[Buffer]:
    root = FlatTensor(segments=[], named_data=[])
    segment_by_digest: dict[bytes, int] = {}
    end = 0
    for key, entry in entries.items():
        content = hashlib.sha256(entry.data).digest()
        if content not in segment_by_digest:
            segment_by_digest[content] = len(root.segments)
            offset = checked_int.align(end, alignment)
            root.segments.append(DataSegment(offset=offset, size=len(entry.data), data=entry.data))
            end = offset + len(entry.data)
        root.named_data.append(
            NamedTensor(key=key, segment_index=segment_by_digest[content], tensor_layout=entry.layout)
        )
    _verify(root)
    flatbuffer = FlatWriter().finish(root, PTD.identifier)
    size = len(flatbuffer) + PTD.padded
    base = checked_int.align(size, alignment)
    header = struct.pack("<4sIQQQQ", PTD.magic, PTD.length, PTD.padded, len(flatbuffer), base, end)
    yield PTD.insert(flatbuffer, header)
    yield from segment_chunks(root.segments, base - size)
