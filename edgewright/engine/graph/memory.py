"""Memory of a plan: the arena of intermediate tensors and the buffer of constants."""

from __future__ import annotations

import mmap
from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.engine.jit.threads import address_of, aligned_buffer
from edgewright.engine.plan import ALIGN, SLACK, Address
from edgewright.ir.graph import Array

# ---------------------------------------------------------------------------------------------------------------- arena

# Static memory planning: one arena for all intermediate tensors, shared by those whose lifetimes do not overlap.
#
# Offset assignment for fixed lifetimes is two-dimensional packing (time by address) and NP-hard. Greedy-by-size,
# largest buffer first at the lowest offset that is free throughout its lifetime, comes within a few percent of the
# lower bound on real networks: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020),
# the planner that TensorFlow Lite uses.


@dataclass(frozen=True)
class BufferLifetime:
    """``size`` bytes, live from the start of node ``first`` to the end of node ``last``."""

    size: int
    first: int
    last: int


def allocate(buffers: Sequence[BufferLifetime]) -> tuple[list[int], int]:
    """Assign an arena offset to each buffer; also return the arena's size.

    SLACK bytes separate neighbors because vector loads may read past a buffer's end.

    >>> allocate([BufferLifetime(100, 0, 1), BufferLifetime(100, 1, 2), BufferLifetime(100, 2, 3)])
    ([0, 384, 0], 768)
    """
    offsets = [0] * len(buffers)
    allocated: list[tuple[int, int, BufferLifetime]] = []  # by offset
    end = 0
    for index in sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].first, i)):
        buffer = buffers[index]
        size = -(-(buffer.size + SLACK) // ALIGN) * ALIGN
        offset = 0
        for start, stop, other in allocated:
            if other.last < buffer.first or buffer.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, stop)
        offsets[index] = offset
        insort(allocated, (offset, offset + size, buffer), key=lambda p: p[0])
        end = max(end, offset + size)
    return offsets, end


# ------------------------------------------------------------------------------------------------------ constant buffer

# The constant buffer: packed weights and lookup tables. Small equal constants are stored once, and all shape
# specializations of a graph share its packed weights.

_MAX_DEDUPLICATED = 4096  # bytes
_MIN_RELEASED = 64 << 10
Write = Callable[[Array], None]


class ConstantPool:
    """Collects constants at aligned offsets; ``build`` lets each be packed directly into its final memory.

    ``deduplicate``: packed weights that are equal are stored once, too, which packs each before its address is known.
    """

    def __init__(self, deduplicate: bool = False) -> None:
        self._deduplicate = deduplicate
        self._parts: list[tuple[int, int, Write, Array | None]] = []
        self._offsets: dict[bytes, int] = {}
        self.size = 0

    def add(self, array: Array) -> Address:
        data: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = data.tobytes() if data.size <= _MAX_DEDUPLICATED else None
        if key is not None and key in self._offsets:
            return Address("weights", self._offsets[key])
        address = self.reserve(data.size, lambda target: np.copyto(target, data))
        if key is not None:
            self._offsets[key] = address.offset
        return address

    def reserve(self, size: int, write: Write, source: Array | None = None) -> Address:
        """Reserve ``size`` zeroed bytes; ``build`` calls ``write`` to fill them.

        ``source`` is the array that ``write`` reads; its pages are released afterwards.
        """
        if self._deduplicate:
            return self._reserve_once(size, write)
        offset = self.size
        self._parts.append((offset, size, write, source))
        self.size += -(-size // ALIGN) * ALIGN
        return Address("weights", offset)

    def _reserve_once(self, size: int, write: Write) -> Address:
        packed = np.zeros(size, np.uint8)
        write(packed)
        key = packed.tobytes()
        if key not in self._offsets:
            self._offsets[key] = self.size
            self._parts.append((self.size, size, lambda target: np.copyto(target, packed), None))
            self.size += -(-size // ALIGN) * ALIGN
        return Address("weights", self._offsets[key])

    def build(self) -> Array:
        """Allocate the buffer and run all deferred writes."""
        buffer = aligned_buffer(self.size + SLACK)[: self.size]
        for offset, size, write, source in self._parts:
            write(buffer[offset : offset + size])
            if source is not None and source.nbytes > _MIN_RELEASED:
                release_pages(source)
        self._parts.clear()  # drops references to the source arrays
        return buffer


def release_pages(source: Array) -> None:
    """Drop the resident pages of an array backed by a read-only mapped file; the kernel reloads them if touched."""
    _advise(source, getattr(mmap, "MADV_DONTNEED", None))


def use_small_pages(source: Array) -> None:
    """Reading a byte of an array backed by a read-only mapped file does not make a huge page resident."""
    _advise(source, getattr(mmap, "MADV_NOHUGEPAGE", None))


def _advise(source: Array, advice: int | None) -> None:
    """Nothing if the array is in other memory, or the system has no such advice (None)."""
    owner: Any = source
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    if advice is None or not isinstance(owner, mmap.mmap) or not memoryview(owner).readonly:
        return
    start = address_of(source) - address_of(np.frombuffer(owner, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = start + source.nbytes - first
    if size > 0 and (source.flags.c_contiguous or source.flags.f_contiguous):
        with suppress(OSError):  # a kernel without huge pages
            owner.madvise(advice, first, size)


def make_resident(weights: Array) -> Array:
    """Return memory that kernels may read: the array itself if it is aligned and followed by SLACK bytes of its own
    allocation, else a copy."""
    owner = weights.base
    if weights.dtype == np.uint8 and isinstance(owner, np.ndarray) and weights.flags.c_contiguous:
        end = address_of(weights) + weights.nbytes + SLACK
        if address_of(weights) % ALIGN == 0 and end <= address_of(owner) + owner.nbytes:
            return weights
    copy = aligned_buffer(weights.nbytes + SLACK)[: weights.nbytes]
    copy[:] = weights.reshape(-1).view(np.uint8)
    return copy


class SharedWeights:
    """Packed arrays, keyed by identity of the source arrays and the packing. Sources are kept alive so that ids stay
    unique."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._indices: dict[Hashable, int] = {}
        self._sources: list[Any] = []

    def pack(self, sources: Sequence[Any], packing: Hashable, size: int, write: Callable[[Array], None]) -> Address:
        """The address of ``size`` bytes packed from ``sources``; ``write`` packs them on first use."""
        key = (*map(id, sources), packing, size)
        if key not in self._indices:
            target = aligned_buffer(size + SLACK)[:size]
            write(target)
            self.arrays.append(target)
            self._sources.extend(sources)
            self._indices[key] = len(self.arrays) - 1  # last, so that an interrupt or a fork leaves a consistent state
        return Address("shared", 0, self._indices[key])
