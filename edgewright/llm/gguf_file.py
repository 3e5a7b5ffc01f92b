"""GGUF files: a verifying, memory-mapped reader of metadata and tensors.

Layout (little endian): magic, version, counts, metadata, tensor infos, padding, data. Every length and offset is
checked against the file before it is used; nothing is allocated that the file does not contain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.errors import FormatError, VersionError
from edgewright.files import Source, open_source
from edgewright.formats import checked_int
from edgewright.llm.stored_tensor import BLOCKS, StoredTensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_COUNT = 1 << 20  # metadata keys, or tensors
_MAX_KEY = 1 << 16
_MAX_RANK = 4
_MAX_ALIGNMENT = 1 << 20
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
GGML_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 30: "BF16",
}  # fmt: skip


@dataclass(frozen=True)
class GgufFile:
    """The metadata by key (numbers, text, bools, lists of text, arrays of numbers) and the tensors by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def read_gguf(source: Source) -> GgufFile:
    """Map and verify a GGUF file."""
    view, name = open_source(source, "checkpoint")
    try:
        return _Reader(view).read()
    except FormatError as error:
        error.file = name
        raise


class _Reader:
    """A cursor over the header of a file."""

    def __init__(self, view: memoryview) -> None:
        self.view, self.at = view, 0

    def read(self) -> GgufFile:
        if bytes(self.view[:4]) != _MAGIC:
            raise FormatError("a GGUF file starts with 'GGUF'", value=bytes(self.view[:4]), offset=0)
        self.at = 4
        version = self.number("<I")
        if version not in _VERSIONS:
            raise VersionError(f"must be GGUF version {' or '.join(map(str, _VERSIONS))}", value=version, offset=4)
        tensor_count, key_count = self.count("<Q", "tensors"), self.count("<Q", "metadata keys")
        metadata: dict[str, Any] = {}
        for index in range(key_count):
            key = self.string(_MAX_KEY)
            if key in metadata:
                raise FormatError("keys must differ", value=key, where=f"metadata[{index}]", offset=self.at)
            try:
                metadata[key] = self.value()
            except FormatError as error:
                raise error.inside(f"metadata {key!r}") from None
        return GgufFile(metadata, self.tensors(tensor_count, metadata))

    # ------------------------------------------------------------------------------------------------- primitives

    def take(self, size: int) -> int:
        """The position of the next ``size`` bytes, which are skipped."""
        start = self.at
        if size > len(self.view) - start:
            raise FormatError(f"needs {size} more bytes", value=len(self.view) - start, offset=start)
        self.at = start + size
        return start

    def number(self, code: str) -> Any:
        return struct.unpack_from(code, self.view, self.take(struct.calcsize(code)))[0]

    def count(self, code: str, what: str) -> int:
        start, count = self.at, int(self.number(code))
        if count > _MAX_COUNT:
            raise FormatError(f"has at most {_MAX_COUNT} {what}", value=count, offset=start)
        return count

    def string(self, limit: int | None = None) -> str:
        start, length = self.at, int(self.number("<Q"))
        if limit is not None and length > limit:
            raise FormatError(f"may have {limit} bytes", value=length, offset=start)
        at = self.take(length)
        try:
            return str(self.view[at : at + length], "utf-8", "strict" if limit else "surrogateescape")
        except UnicodeDecodeError as error:
            raise FormatError("must be UTF-8", value=bytes(self.view[at : at + length][:64]), offset=at) from error

    # --------------------------------------------------------------------------------------------------- metadata

    def value(self) -> Any:
        start, kind = self.at, int(self.number("<I"))
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _NUMBERS:
            raise FormatError("must be a known type", value=kind, offset=start)
        number = self.number(_STRUCT[kind])
        if kind == _BOOL and number > 1:
            raise FormatError("a bool must be 0 or 1", value=number, offset=self.at - 1)
        return bool(number) if kind == _BOOL else number

    def array(self) -> Any:
        """A list of text, or an array of numbers, which is a view of the file."""
        start, kind, count = self.at, int(self.number("<I")), int(self.number("<Q"))
        if kind == _STRING:
            if count > (len(self.view) - self.at) // 8:  # each has 8 bytes of length
                raise FormatError("the array must be in the file", value=count, offset=start)
            return [self.string() for _ in range(count)]
        if kind not in _NUMBERS:
            raise FormatError("elements must be numbers or text", value=kind, offset=start)
        dtype = np.dtype(_NUMBERS[kind])
        size = checked_int.product((count, dtype.itemsize))
        at = self.take(size)
        return np.frombuffer(self.view[at : at + size], dtype)

    # ---------------------------------------------------------------------------------------------------- tensors

    def tensors(self, count: int, metadata: Mapping[str, Any]) -> dict[str, StoredTensor]:
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
            rule = f"must be a power of two up to {_MAX_ALIGNMENT}"
            raise FormatError(rule, value=alignment, where="metadata 'general.alignment'")
        infos: dict[str, Callable[[int], StoredTensor]] = {}
        for index in range(count):
            try:
                name, make = self.tensor_info(alignment)
            except FormatError as error:
                raise error.inside(f"tensors[{index}]") from None
            if name in infos:
                raise FormatError("names must differ", value=name, where=f"tensors[{index}]", offset=self.at)
            infos[name] = make
        start = checked_int.align(self.at, alignment)
        return {name: make(start) for name, make in infos.items()}

    def tensor_info(self, alignment: int) -> tuple[str, Callable[[int], StoredTensor]]:
        """A tensor's name, and a function from the start of the data to the tensor."""
        name, start, rank = self.string(_MAX_KEY), self.at, int(self.number("<I"))
        if not 1 <= rank <= _MAX_RANK:
            raise FormatError(f"has 1 to {_MAX_RANK} dimensions", value=rank, offset=start)
        dims = [int(self.number("<Q")) for _ in range(rank)]
        if not all(1 <= n <= checked_int.MAX_BYTES for n in dims):
            raise FormatError("sizes must be positive", value=dims, offset=start)
        kind, offset = int(self.number("<I")), int(self.number("<Q"))
        if kind not in GGML_TYPES:
            rule = f"{name!r} must be one of {', '.join(GGML_TYPES.values())}"
            raise FormatError(rule, value=f"type {kind}", where="type", offset=start)
        if offset % alignment:
            raise FormatError(f"offset must be a multiple of {alignment}", value=offset, offset=start)
        elements, block_bytes = BLOCKS[GGML_TYPES[kind]]
        if dims[0] % elements:
            raise FormatError(f"{GGML_TYPES[kind]} rows are multiples of {elements}", value=dims[0], offset=start)
        row = dims[0] // elements * block_bytes
        rows = checked_int.product(dims[1:])
        size = checked_int.product((rows, row))

        def make(base: int) -> StoredTensor:
            checked_int.check_range(checked_int.add(base, offset), size, len(self.view), f"tensor {name!r}")
            at = base + offset
            data = np.frombuffer(self.view[at : at + size], np.uint8).reshape(rows, row)
            return StoredTensor(GGML_TYPES[kind], tuple(reversed(dims)), data)

        return name, make


_STRUCT = {kind: f"<{np.dtype(code).char}" for kind, code in _NUMBERS.items()} | {10: "<Q", 11: "<q"}
