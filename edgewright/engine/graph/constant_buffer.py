"""The constant buffer: packed weights and tables; small ones that are equal are stored once."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.engine.jit.threads import address_of, aligned_buffer
from edgewright.engine.plan import ALIGN, SLACK, Address
from edgewright.ir.graph import Array

_SMALL = 4096  # bytes
_LARGE = 64 << 10
Write = Callable[[Array], None]


class ConstantBuffer:
    """Arrays, one after the other, each aligned. Large ones are written straight to where they will be read."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, Write, Array | None]] = []
        self._known: dict[bytes, int] = {}
        self.size = 0

    def add(self, array: Array) -> Address:
        data: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = data.tobytes() if data.size <= _SMALL else None
        if key is not None and key in self._known:
            return Address("weights", self._known[key])
        place = self.reserve(data.size, lambda room: np.copyto(room, data))
        if key is not None:
            self._known[key] = place.offset
        return place

    def reserve(self, size: int, write: Write, source: Array | None = None) -> Address:
        """Room for so many bytes, all 0, which ``write`` is given when everything has its place.

        ``source`` is what it will read, and most likely nobody else.
        """
        offset = self.size
        self._parts.append((offset, size, write, source))
        self.size += -(-size // ALIGN) * ALIGN
        return Address("weights", offset)

    def build(self) -> Array:
        """The buffer, as kernels may read it."""
        whole = aligned_buffer(self.size + SLACK)[: self.size]
        for offset, size, write, source in self._parts:
            write(whole[offset : offset + size])
            if source is not None and source.nbytes > _LARGE:
                release_pages(source)
        self._parts.clear()  # and with them what they were written from
        return whole


def release_pages(source: Array) -> None:
    """Let go of the memory a mapped file's bytes are in, if it can only be read: touched again, they are read again."""
    owner: Any = source
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    if not isinstance(owner, mmap.mmap) or not hasattr(owner, "madvise") or not memoryview(owner).readonly:
        return
    start = address_of(source) - address_of(np.frombuffer(owner, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = start + source.nbytes - first
    if size > 0 and (source.flags.c_contiguous or source.flags.f_contiguous):
        owner.madvise(mmap.MADV_DONTNEED, first, size)


def make_resident(weights: Array) -> Array:
    """The bytes where kernels may read them: as they lie if they are aligned and followed by SLACK bytes of their own,
    else a copy."""
    owner = weights.base
    if weights.dtype == np.uint8 and isinstance(owner, np.ndarray) and weights.flags.c_contiguous:
        end = address_of(weights) + weights.nbytes + SLACK
        if address_of(weights) % ALIGN == 0 and end <= address_of(owner) + owner.nbytes:
            return weights
    copy = aligned_buffer(weights.nbytes + SLACK)[: weights.nbytes]
    copy[:] = weights.reshape(-1).view(np.uint8)
    return copy
