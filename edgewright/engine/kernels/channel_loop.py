"""All channels of a pixel, vector by vector: few are written out one after another, many are a loop.

The text of a kernel is bounded so, whatever number of channels a file asks for.
"""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen.builder import Function, Operand, Reg

Cover = Callable[[int, int], list[tuple[int, int]]]
MAX_UNROLLED = 8  # vectors that are written out


def vector_widths(total: int, most: int) -> list[tuple[int, int]]:
    """Vectors that cover so many elements: (width, of which so many count)."""
    made: list[tuple[int, int]] = []
    while total:
        width = most
        while width > 4 and width // 2 >= total:
            width //= 2
        made.append((width, min(width, total)))
        total -= min(width, total)
    return made


def for_each_channel_vector(
    f: Function, channels: int, most: int, cover: Cover, body: Callable[[Operand, int, int], None]
) -> None:
    """``body(first channel, width of the vector, of which so many count)`` for all of them.

    ``cover``: the vectors of what is left beside whole ones, as ``vector_widths`` gives them.
    """
    step = MAX_UNROLLED // 2 * most
    looped = 0 if channels <= MAX_UNROLLED * most else channels // step * step

    def several(first: Reg, _: list[Reg]) -> list[Reg]:
        for start in range(0, step, most):
            body(f.add(first, start), most, most)
        return []

    if looped:
        f.loop(looped, [], several, step)
    start = looped
    for width, used in cover(channels - looped, most):
        body(start, width, used)
        start += width


def byte_offset(f: Function, first: Operand, item: int) -> Operand:
    """Bytes to an element."""
    return f.mul(first, item) if isinstance(first, Reg) else first * item
