"""Memory planning: who may share which bytes, and where they lie in the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgewright.errors import UsageError
from edgewright.pte.numbers import align

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
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
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
    """Give every block an offset; blocks alive at the same time never overlap. Returns the arena's size."""
    best: tuple[int, list[int]] | None = None
    for order in (
        sorted(blocks, key=lambda b: (-b.size, b.start)),
        sorted(blocks, key=lambda b: (b.start, -b.size)),
        sorted(blocks, key=lambda b: (-b.size * (b.end - b.start + 1), b.start)),
    ):
        size = _place(order, alignment)
        if best is None or size < best[0]:
            best = size, [b.offset for b in blocks]
    if best is None:
        return 0
    for block, offset in zip(blocks, best[1], strict=True):
        block.offset = offset
    return best[0]


def _place(order: Sequence[Block], alignment: int) -> int:
    """First fit in this order: the lowest gap between blocks that are alive at the same time."""
    placed: list[Block] = []
    total = 0
    for block in order:
        at = 0
        for other in sorted((p for p in placed if p.overlaps(block)), key=lambda p: p.offset):
            if at + block.size <= other.offset:
                break
            at = max(at, align(other.offset + other.size, alignment))
        block.offset = at
        placed.append(block)
        total = max(total, at + block.size)
    return total
