"""Writes GGUF files, byte by byte, also invalid ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A value with its type."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, bool):
        return struct.pack("<IB", BOOL, item)
    if isinstance(item, int):
        return struct.pack("<Ii", I32, item) if item < 0 else struct.pack("<II", U32, item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    if isinstance(item, str):
        return struct.pack("<I", STRING) + text(item)
    if len(item) and isinstance(item[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + b"".join(map(text, item))
    return struct.pack("<IIQ", ARRAY, I32, len(item)) + np.array(item, "<i4").tobytes()


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]], *, version: int = 3,
    alignment: int = 32,
) -> bytes:  # fmt: skip
    """A file; ``tensors``: type, shape as numpy has it, and data."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(data))
        data += content
    return head + bytes(-len(head) % alignment) + data
