"""Packed weights that all shape specializations of a graph share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from edgewright.engine.jit.threads import aligned_buffer
from edgewright.engine.plan import SLACK, Address
from edgewright.ir.graph import Array


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
