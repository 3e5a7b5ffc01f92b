"""Sliding windows: positions, taps, strides and padding of convolution and pooling.

Tap ``t`` of the window at position ``o`` reads input element ``o * stride - padding + t * dilation``. The padded input
is never built: each tap has a range of positions that read existing elements, and only those are visited, so no
padding, stride or dilation in a file can cost memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.ir.aten.reference.dims import Shape

Reach = tuple[slice, slice]


def per_axis(values: Sequence[int], rank: int, name: str, at_least: int) -> Shape:
    """``rank`` numbers of at least ``at_least``; a single number applies to all axes.

    >>> per_axis([2], 3, "stride", 1)
    (2, 2, 2)
    """
    numbers = tuple(map(int, values)) * (rank if len(values) == 1 else 1)
    if len(numbers) != rank or any(n < at_least for n in numbers):
        raise ValueError(f"{name} must be {rank} numbers of at least {at_least}, got {list(values)}")
    return numbers


def reach(size: int, count: int, stride: int, offset: int) -> Reach | None:
    """The positions of ``range(count)`` for which ``position * stride + offset`` is in ``range(size)``.

    Returns the positions and the elements they read, as slices of equal length; None if there are none.

    >>> reach(size=5, count=3, stride=2, offset=-1)
    (slice(1, 3, None), slice(1, 4, 2))
    """
    first = max(0, -(offset // stride))
    last = min(count, (size - 1 - offset) // stride + 1)
    if first >= last:
        return None
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


def cheaper_first(sizes: Sequence[int], counts: Sequence[int]) -> tuple[int, int]:
    """The order in which to resize the last two axes with the smaller intermediate result.

    >>> cheaper_first((100, 1), (1, 100))
    (-2, -1)
    """
    return (-1, -2) if sizes[0] * counts[1] <= counts[0] * sizes[1] else (-2, -1)
