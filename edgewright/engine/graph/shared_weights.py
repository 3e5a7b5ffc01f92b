"""Packed weights that all forms of a graph have in common: packed once, whatever sizes come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from edgewright.engine.jit.threads import aligned_buffer
from edgewright.engine.plan import SLACK, Address
from edgewright.ir.graph import Array


class SharedWeights:
    """Each with the key that says what it was made from and how; what keys name is kept as long as they are."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._known: dict[Hashable, int] = {}
        self._kept: list[Any] = []

    def pack(self, made_of: Sequence[Any], how: Hashable, size: int, write: Callable[[Array], None]) -> Address:
        """Where ``size`` bytes made of these arrays are; ``write`` makes them if they are new."""
        key = (*map(id, made_of), how, size)
        if key not in self._known:
            room = aligned_buffer(size + SLACK)[:size]
            write(room)
            self.arrays.append(room)
            self._kept.extend(made_of)
            self._known[key] = len(self.arrays) - 1  # last: an interrupt or a fork may come between any two lines
        return Address("shared", 0, self._known[key])
