"""Static memory planning: one arena for all intermediate tensors, shared by those whose lifetimes do not overlap.

Offset assignment for fixed lifetimes is two-dimensional packing (time by address) and NP-hard. Greedy-by-size, largest
buffer first at the lowest offset that is free throughout its lifetime, comes within a few percent of the lower bound
on real networks: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), the planner
that TensorFlow Lite uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.plan import ALIGN, SLACK


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
        allocated.append((offset, offset + size, buffer))
        allocated.sort(key=lambda p: p[0])
        end = max(end, offset + size)
    return offsets, end
