"""Vectorized loop over the channels of a pixel: unrolled for few channels, a loop for many.

This bounds a kernel's code size, whatever number of channels a file declares.
"""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen.builder import Function, Operand, Reg

Cover = Callable[[int, int], list[tuple[int, int]]]
MAX_UNROLLED = 8  # vectors


def vector_widths(total: int, max_width: int) -> list[tuple[int, int]]:
    """Vectors that cover ``total`` elements: (width, used lanes)."""
    vectors: list[tuple[int, int]] = []
    while total:
        width = max_width
        while width > 4 and width // 2 >= total:
            width //= 2
        vectors.append((width, min(width, total)))
        total -= min(width, total)
    return vectors


def for_each_channel_vector(
    f: Function, channels: int, max_width: int, cover: Cover, body: Callable[[Operand, int, int], None]
) -> None:
    """``body(first_channel, width, used)`` for every vector of channels.

    ``cover`` splits the channels after the loop into vectors, like ``vector_widths``.
    """
    step = MAX_UNROLLED // 2 * max_width
    looped = 0 if channels <= MAX_UNROLLED * max_width else channels // step * step

    def several(first: Reg, _: list[Reg]) -> list[Reg]:
        for start in range(0, step, max_width):
            body(f.add(first, start), max_width, max_width)
        return []

    if looped:
        f.loop(looped, [], several, step)
    start = looped
    for width, used in cover(channels - looped, max_width):
        body(start, width, used)
        start += width


def byte_offset(f: Function, first: Operand, item: int) -> Operand:
    """The byte offset of an element."""
    return f.mul(first, item) if isinstance(first, Reg) else first * item
