"""Memory planning: who may share which bytes, and where they lie in the arena."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgewright.errors import UsageError
from edgewright.formats.checked_int import align

ALIGNMENT = 16


@dataclass
class MemoryPlanningPass:
    """How a method's memory is planned.

    ``alloc_graph_input`` and ``alloc_graph_output``: False leaves the memory of inputs or outputs to the caller.
    ``share_mutable_buffers`` puts state in an arena of its own, at the same places in every method.
    """

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alloc_mutable_buffers: bool = True
    share_mutable_buffers: bool = False
    alignment: int = ALIGNMENT

    def __post_init__(self) -> None:
        for name in ("alloc_graph_input", "alloc_graph_output", "alloc_mutable_buffers", "share_mutable_buffers"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"MemoryPlanningPass.{name}", "must be True or False", value=getattr(self, name))
        whole = isinstance(self.alignment, int) and not isinstance(self.alignment, bool)
        if not whole or self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise UsageError("MemoryPlanningPass.alignment", "must be a power of two", value=self.alignment)
        if self.share_mutable_buffers and not self.alloc_mutable_buffers:
            raise UsageError("MemoryPlanningPass", "share_mutable_buffers needs alloc_mutable_buffers")


@dataclass(eq=False)
class Block:
    """Bytes that one or more tensors share, from the first instruction that writes them to the last that reads."""

    size: int
    start: int
    end: int
    offset: int = -1
    names: list[str] = field(default_factory=list)

    def overlaps(self, other: Block) -> bool:
        return self.start <= other.end and other.start <= self.end


def plan(blocks: Sequence[Block], alignment: int = ALIGNMENT) -> int:
    """Give every block an offset; blocks alive at the same time never overlap. Returns the arena's size.

    Several orders of placing them are tried, until one needs no more than is alive at once.
    """
    least = peak(blocks)
    best: tuple[int, list[int]] | None = None
    for key in _ORDERS:
        size = _place(sorted(blocks, key=key), alignment)
        if best is None or size < best[0]:
            best = size, [b.offset for b in blocks]
        if size <= least:
            break
    for block, offset in zip(blocks, best[1] if best else (), strict=True):
        block.offset = offset
    return best[0] if best else 0


# Ties are broken by the order blocks are given in: sorting is stable.
_ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.start),
    lambda b: (b.start, -b.size),
    lambda b: (-b.size * (b.end - b.start + 1), b.start),
    lambda b: (b.start - b.end, -b.size),
    lambda b: (-b.end, -b.size),
)


def peak(blocks: Sequence[Block]) -> int:
    """The most bytes that are alive at once: no plan needs less."""
    edges: dict[int, list[tuple[bool, int]]] = {}
    for block in blocks:
        edges.setdefault(block.start, []).append((True, block.size))
        edges.setdefault(block.end + 1, []).append((False, block.size))
    alive = most = 0
    for at in sorted(edges):
        alive += sum(size if starts else -size for starts, size in edges[at])
        most = max(most, alive)
    return most


def _place(order: Sequence[Block], alignment: int) -> int:
    """First fit in this order: the lowest gap between blocks that are alive at the same time."""
    placed: list[Block] = []  # by offset
    total = 0
    for block in order:
        at, start, end = 0, block.start, block.end
        for other in placed:
            if other.start > end or start > other.end:
                continue
            if at + block.size <= other.offset:
                break
            at = max(at, align(other.offset + other.size, alignment))
        block.offset = at
        insort(placed, block, key=_offset)
        total = max(total, at + block.size)
    return total


def _offset(block: Block) -> int:
    return block.offset
