"""The constant buffer: packed weights and tables; small ones that are equal are stored once."""

from __future__ import annotations

import numpy as np

from edgewright.engine.plan import ALIGN, Place
from edgewright.ir.graph import Array

_SMALL = 4096  # bytes


class Weights:
    """Arrays, one after the other, each aligned."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Array]] = []
        self._known: dict[bytes, int] = {}
        self.size = 0

    def add(self, array: Array) -> Place:
        data: Array = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = data.tobytes() if data.size <= _SMALL else None
        if key is not None and key in self._known:
            return Place("weights", self._known[key])
        offset = self.size
        self._parts.append((offset, data))
        self.size += -(-data.size // ALIGN) * ALIGN
        if key is not None:
            self._known[key] = offset
        return Place("weights", offset)

    def build(self) -> Array:
        whole: Array = np.zeros(self.size, np.uint8)
        for offset, data in self._parts:
            whole[offset : offset + data.size] = data
        return whole
