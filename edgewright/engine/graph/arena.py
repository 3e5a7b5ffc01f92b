"""One piece of memory for all values that live inside a graph: those that never live together share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.plan import ALIGN, SLACK


@dataclass(frozen=True)
class BufferLifetime:
    """``size`` bytes from when step ``first`` starts until ``last`` has ended."""

    size: int
    first: int
    last: int


def allocate(needs: Sequence[BufferLifetime]) -> tuple[list[int], int]:
    """An offset for each need, and the size of the arena. Largest first, each at the lowest place that is free.

    Between two neighbours lie SLACK bytes: kernels may read past a value's end.

    >>> allocate([Need(100, 0, 1), Need(100, 1, 2), Need(100, 2, 3)])
    ([0, 384, 0], 768)
    """
    offsets = [0] * len(needs)
    placed: list[tuple[int, int, BufferLifetime]] = []  # by offset
    end = 0
    for index in sorted(range(len(needs)), key=lambda i: (-needs[i].size, needs[i].first, i)):
        need = needs[index]
        size = -(-(need.size + SLACK) // ALIGN) * ALIGN
        offset = 0
        for start, stop, other in placed:
            if other.last < need.first or need.last < other.first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, stop)
        offsets[index] = offset
        placed.append((offset, offset + size, need))
        placed.sort(key=lambda p: p[0])
        end = max(end, offset + size)
    return offsets, end
