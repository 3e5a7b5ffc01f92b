"""Memory checks of a plan: every byte a node reads was written by the value's producer, and is still that value's.

Machine code has no bounds checks and no notion of values, so a mistake in lifetimes, aliases or in-place parts becomes
a wrong number. The check replays the plan on a map of the memory: writing a value claims its bytes, reading it demands
that all of them are claimed by it. That covers overlapping live ranges, views of memory that was reused, and
concatenations whose parts are missing, whatever pass made them. Compare AddressSanitizer's shadow memory (Serebryany et
al., 2012); here it is consulted once, when a plan is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.graph.layout import Storage
from edgewright.engine.plan import Address
from edgewright.errors import EdgewrightError
from edgewright.ir.graph import Array, Value

Buffer = tuple[str, int]  # "arena", "input" or "output", and which of the caller's arrays


class PlanError(EdgewrightError):
    """A plan whose nodes read memory that does not contain their operands: a bug in the engine, not in the model."""

    stage = "verify plan"
    exit_code = 70


@dataclass(frozen=True)
class Access:
    """What a node of the plan reads and writes, and its steps: ``first`` up to, but not including, ``last``.

    ``same``: the result aliases that value's memory, without a copy.
    """

    label: str
    reads: tuple[Storage, ...]
    writes: tuple[Storage, ...]
    temporaries: tuple[tuple[int, int], ...] = ()  # offset and size in the arena
    first: int = 0
    last: int = 0
    same: Value | None = None


def verify_plan(accesses: Sequence[Access], arena: int, inputs: Sequence[Storage]) -> None:
    """Raise ``PlanError`` unless every node reads what was written for it. ``inputs``: what the caller provides."""
    memory = _Memory(arena, accesses)
    for storage in inputs:
        memory.claim(storage)
    for access in accesses:
        for storage in access.reads:
            memory.check_read(storage, access.label)
        if access.same is not None:
            memory.numbers[access.writes[0].value] = memory.numbers[access.same]
            continue
        for offset, size in access.temporaries:
            memory.release(offset, size)
        for storage in access.writes:
            memory.claim(storage)


class _Memory:
    """Shadow memory: the number of the value that owns each granule of each buffer; 0 is unowned."""

    def __init__(self, arena: int, accesses: Sequence[Access]) -> None:
        storages = [storage for access in accesses for storage in (*access.reads, *access.writes)]
        sizes = [n for access in accesses for pair in access.temporaries for n in pair]
        sizes += [n for h in storages for n in (h.address.offset, h.layout.start, h.layout.size, h.layout.item)]
        self.granule = math.gcd(64, *sizes, *(s for h in storages for s in h.layout.strides))
        self.owners: dict[Buffer, Array] = {("arena", 0): np.zeros(-(-arena // self.granule), np.int32)}
        self.numbers: dict[Value, int] = {}

    def claim(self, storage: Storage) -> None:
        """Record that a value was written: it owns its bytes, border included."""
        number = self.numbers[storage.value] = len(self.numbers) + 1
        self._owners_of(storage)[...] = number

    def release(self, offset: int, size: int) -> None:
        self.owners["arena", 0][offset // self.granule : -(-(offset + size) // self.granule)] = 0

    def check_read(self, storage: Storage, label: str) -> None:
        number = self.numbers.get(storage.value)
        if number is None:
            raise PlanError(label, "reads a value that is never written", value=storage.value.name)
        others = np.count_nonzero(self._owners_of(storage) != number)
        if others:
            rule = f"must read {storage.value.name} as it was written; bytes that another value overwrote"
            raise PlanError(label, rule, value=int(others) * self.granule)

    def _owners_of(self, storage: Storage) -> Array:
        """The owners of a value's granules: of its elements, or of its entire allocation if it has a border."""
        layout, granule = storage.layout, self.granule
        if layout.border:
            start = storage.address.offset - layout.start
            return self._buffer(storage.address, start + layout.size)[
                start // granule : (start + layout.size) // granule
            ]
        if 0 in layout.shape:
            return np.zeros(0, np.int32)
        end = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) + layout.item
        owners = self._buffer(storage.address, storage.address.offset + end)
        axes = _merge_axes(zip((*layout.shape, layout.item // granule), (*layout.strides, granule), strict=True))
        shape, strides = [n for n, _ in axes], [step // granule * owners.itemsize for _, step in axes]
        return np.ndarray(shape, owners.dtype, owners, storage.address.offset // granule * owners.itemsize, strides)

    def _buffer(self, address: Address, size: int) -> Array:
        """The owner map of a buffer, grown to ``size`` bytes; only the arena's size is known in advance."""
        key = (address.buffer, address.index)
        count, owners = -(-size // self.granule), self.owners.get(key, np.zeros(0, np.int32))
        if count > owners.size:
            if address.buffer == "arena":
                raise PlanError("arena", f"has {owners.size * self.granule} bytes; a value ends at", value=size)
            owners = self.owners[key] = np.concatenate((owners, np.zeros(count - owners.size, np.int32)))
        return owners


def _merge_axes(axes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(size, stride) per dimension, outermost first, with contiguous dimensions merged."""
    merged: list[tuple[int, int]] = []
    for n, step in axes:
        if n == 1:
            continue
        if merged and merged[-1][1] == n * step:
            merged[-1] = merged[-1][0] * n, step
        else:
            merged.append((n, step))
    return merged
