"""Packed weights in mapped files: they are packed once, and processes that run the same program share their pages.

A program's weights are in one or a few files of the cache folder (``cache.py``), by the digest of their contents. The
plans of all shapes refer to them. Weights that a plan needs and no file has are added in a new file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from edgewright.engine.jit.cache import HEADER, cache_key, default_cache
from edgewright.engine.jit.threads import address_of
from edgewright.engine.plan import ALIGN, SLACK
from edgewright.ir.graph import Array

_MAX_FILES = 16
_LENGTH = 8  # bytes of the table's length field
Place = tuple[int, int, int]  # file, offset, size


class WeightStore:
    """The weights of one program, which ``name`` identifies."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._files: list[Array] = []
        self._places: dict[str, Place] = {}  # by digest
        self._opened = False

    def _key(self, file: int) -> str:
        return cache_key("weights", self._name, str(file))

    def _open(self) -> None:
        """Map the files that exist, once."""
        while not self._opened and len(self._files) < _MAX_FILES:
            self._opened = not self._add_file()
        self._opened = True

    def _add_file(self) -> bool:
        payload = default_cache().view_weights(self._key(len(self._files)))
        if payload is None:
            return False
        end = _LENGTH + int.from_bytes(payload[:_LENGTH], "little")
        data = np.frombuffer(payload, np.uint8)
        for digest, offset, size in json.loads(bytes(payload[_LENGTH:end])):
            self._places[digest] = (len(self._files), offset, size)
        self._files.append(data)
        return True

    def at(self, place: Sequence[int]) -> Array:
        """The array at a place; ``LookupError`` if there is none."""
        self._open()
        file, offset, size = place
        array = self._files[file][offset : offset + size]
        if array.nbytes != size or address_of(array) % ALIGN:
            raise LookupError(f"no weights at {place}")
        return array

    def places(self, arrays: Sequence[Array]) -> list[Place] | None:
        """Where these arrays are; None if they are not all in files of this store."""
        ranges = [(address_of(data), data.nbytes) for data in self._files]
        places = []
        for array in arrays:
            at = address_of(array)
            file = next((i for i, (start, size) in enumerate(ranges) if start <= at < start + size), None)
            if file is None:
                return None
            places.append((file, at - ranges[file][0], array.nbytes))
        return places

    def persist(self, arrays: list[Array]) -> None:
        """Replace arrays with the same bytes in mapped files, which are written if need be. Arrays stay as they are if
        the cache cannot be used."""
        self._open()
        mapped = self.places(arrays)
        if mapped is not None or len(self._files) >= _MAX_FILES:
            return
        digests = [hashlib.sha256(array.data).hexdigest() for array in arrays]
        missing = {d: a for d, a in zip(digests, arrays, strict=True) if d not in self._places}
        if missing:
            self._write(missing)
        for i, digest in enumerate(digests):
            if digest in self._places:
                arrays[i] = self.at(self._places[digest])

    def _write(self, arrays: dict[str, Array]) -> None:
        """A new file: the length of a table, the table, and the arrays, aligned in memory when the file is mapped."""
        sizes = {digest: array.nbytes for digest, array in arrays.items()}
        start = _aligned(_LENGTH + sum(len(digest) + 32 for digest in sizes) + 2)
        table: list[tuple[str, int, int]] = []
        at = start
        for digest, size in sizes.items():
            table.append((digest, at, size))
            at = _aligned(at + size + SLACK)
        text = json.dumps(table).encode()
        assert _LENGTH + len(text) <= start
        parts: list[memoryview | bytes] = [len(text).to_bytes(_LENGTH, "little"), text]
        written = _LENGTH + len(text)
        for (_, offset, size), array in zip(table, arrays.values(), strict=True):
            parts += [bytes(offset - written), array.data.cast("B")]
            written = offset + size
        parts.append(bytes(SLACK))
        default_cache().put_weights(self._key(len(self._files)), parts)
        self._add_file()


def _aligned(at: int) -> int:
    """The next offset that is aligned in memory when the file is mapped."""
    return -(-(at + HEADER) // ALIGN) * ALIGN - HEADER
