"""``.safetensors`` files: the header, verified. No torch here."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgewright.errors import FormatError
from edgewright.formats import checked_int

ITEMSIZE = {
    "BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8, "F16": 2, "BF16": 2,
    "F32": 4, "F64": 8, "F8_E5M2": 1, "F8_E4M3": 1, "C64": 8,
}  # fmt: skip
MAX_HEADER = 100_000_000  # the limit of the format
_MAX_RANK = 64  # the limit of torch


@dataclass(frozen=True)
class SafetensorsEntry:
    """A tensor's type, shape and extent in the file's data."""

    dtype: str
    shape: list[int]
    begin: int
    end: int


def read_entries(view: memoryview) -> tuple[int, dict[str, SafetensorsEntry]]:
    """The offset of the data, and the tensors by name, which fill it without gaps or overlaps."""
    start, header = _header(view)
    entries = {key: _entry(key, item) for key, item in header.items() if key != "__metadata__"}
    _check_extents(entries, len(view) - start)
    return start, entries


def _header(view: memoryview) -> tuple[int, dict[str, Any]]:
    """The offset of the data, and the parsed header."""
    if len(view) < 8:
        raise FormatError("a .safetensors file starts with 8 bytes of length", value=len(view), offset=0)
    (length,) = struct.unpack_from("<Q", view)
    if length > MAX_HEADER:
        raise FormatError(f"the header has at most {MAX_HEADER} bytes", value=length, where="header", offset=0)
    checked_int.check_range(8, length, len(view), "the header")
    try:
        header = json.loads(bytes(view[8 : 8 + length]).decode("utf-8"), object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"must be JSON: {error}", where="header", offset=8) from error
    if not isinstance(header, dict):
        raise FormatError("must be a JSON object", value=type(header).__name__, where="header", offset=8)
    return 8 + length, header


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise FormatError("names must differ", value=name, where="header", offset=8)
        result[name] = value
    return result


def _entry(name: str, item: Any) -> SafetensorsEntry:
    def fail(rule: str, value: object, field: str = "") -> FormatError:
        return FormatError(rule, value=value, where=f"{name}.{field}" if field else name, offset=8)

    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data_offsets"}:
        raise fail("must be an object of dtype, shape and data_offsets", item)
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEMSIZE:
        raise fail(f"must be one of {', '.join(ITEMSIZE)}", dtype, "dtype")
    if not _is_size_list(shape) or len(shape) > _MAX_RANK:
        raise fail(f"must be a list of at most {_MAX_RANK} sizes", shape, "shape")
    if not _is_size_list(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise fail("must be where the data begins and ends", offsets, "data_offsets")
    try:
        size = checked_int.product((*shape, ITEMSIZE[dtype]))
    except FormatError as error:
        raise error.inside(f"{name}.shape") from None
    if size != offsets[1] - offsets[0]:
        raise fail(f"must span the tensor's {size} bytes", offsets[1] - offsets[0], "data_offsets")
    return SafetensorsEntry(dtype, shape, *offsets)


def _is_size_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= checked_int.MAX_BYTES for n in value)


def _check_extents(entries: Mapping[str, SafetensorsEntry], size: int) -> None:
    """Raise unless the tensors cover the data without gaps or overlaps."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            rule = f"must begin at byte {at} of the data, where the one before ends"
            raise FormatError(rule, value=entry.begin, where=f"{name}.data_offsets", offset=8)
        at = entry.end
    if at != size:
        raise FormatError(f"the tensors must fill the {size} bytes of data", value=at, where="header", offset=8)
