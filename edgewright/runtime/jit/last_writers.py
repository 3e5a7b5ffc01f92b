"""Which tensor wrote each byte of planned memory last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_Interval = tuple[int, int, int]  # the first byte, the byte after the last, and the tensor that wrote them


class LastWriters:
    """Disjoint intervals of each memory, sorted.

    >>> writers = LastWriters()
    >>> writers.write(7, 0, 0, 100)
    >>> writers.write(8, 0, 20, 30)
    >>> sorted(writers.of(0, 10, 25)), writers.of(0, 22, 30), writers.of(0, 100, 200), writers.of(1, 0, 100)
    ([7, 8], {8}, set(), set())
    >>> writers.write(9, 0, 0, 30)
    >>> sorted(writers.of(0, 0, 100))
    [7, 9]
    """

    def __init__(self) -> None:
        self._memories: dict[int, list[_Interval]] = {}

    def of(self, memory: int, start: int, end: int) -> set[int]:
        """The tensors that wrote the bytes from ``start`` to ``end``."""
        intervals = self._memories.get(memory, [])
        low, high = _overlapping(intervals, start, end)
        return {tensor for _, _, tensor in intervals[low:high]}

    def write(self, tensor: int, memory: int, start: int, end: int) -> None:
        if start >= end:
            return
        intervals = self._memories.setdefault(memory, [])
        low, high = _overlapping(intervals, start, end)
        kept = intervals[low:high]
        before = [(first, start, writer) for first, _, writer in kept[:1] if first < start]
        after = [(end, last, writer) for _, last, writer in kept[-1:] if last > end]
        intervals[low:high] = [*before, (start, end, tensor), *after]


def _overlapping(intervals: list[_Interval], start: int, end: int) -> tuple[int, int]:
    """The range of the intervals that overlap others."""
    if start >= end:
        return 0, 0
    low = bisect_right(intervals, start, key=lambda interval: interval[1])
    return low, bisect_left(intervals, end, lo=low, key=lambda interval: interval[0])
