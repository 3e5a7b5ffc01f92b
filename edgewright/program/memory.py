"""Memory planning: offsets for blocks in an arena, so that blocks that are live at the same time do not overlap.

This is dynamic storage allocation (rectangle packing along the time axis), which is NP-hard. Like TFLite's arena
planner we place blocks greedily by first fit, and try several orders, largest first being the usual best; the peak of
live bytes is a lower bound that ends the search. Read: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural
Net Inference" (2020).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgewright.errors import UsageError
from edgewright.formats.checked_int import align

ALIGNMENT = 16


@dataclass
class MemoryPlanningPass:
    """Options of memory planning.

    ``alloc_graph_input`` and ``alloc_graph_output``: False leaves the memory of inputs or outputs to the caller.
    ``share_mutable_buffers`` places state in a separate arena, at the same offsets in every method.
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
        is_int = isinstance(self.alignment, int) and not isinstance(self.alignment, bool)
        if not is_int or self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise UsageError("MemoryPlanningPass.alignment", "must be a power of two", value=self.alignment)
        if self.share_mutable_buffers and not self.alloc_mutable_buffers:
            raise UsageError("MemoryPlanningPass", "share_mutable_buffers needs alloc_mutable_buffers")


@dataclass(eq=False)
class Block:
    """Memory of one or more tensors, and its live range: the first instruction that writes it to the last that
    reads."""

    size: int
    start: int
    end: int
    offset: int = -1
    names: list[str] = field(default_factory=list)

    def overlaps(self, other: Block) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(eq=False)
class Allocation:
    """A tensor's block; ``planned`` is False if the caller or an instruction provides the memory."""

    block: Block
    planned: bool


def plan_arena(blocks: Sequence[Block], alignment: int = ALIGNMENT) -> int:
    """Assign an offset to every block; blocks that are live at the same time never overlap. Returns the arena's size.

    Tries several placement orders, until one needs no more than the peak of live bytes.
    """
    lower_bound = peak_live_bytes(blocks)
    best: tuple[int, list[int]] | None = None
    for key in _ORDERS:
        size = _first_fit(sorted(blocks, key=key), alignment)
        if best is None or size < best[0]:
            best = size, [b.offset for b in blocks]
        if size <= lower_bound:
            break
    for block, offset in zip(blocks, best[1] if best else (), strict=True):
        block.offset = offset
    return best[0] if best else 0


# Sorting is stable: ties keep the order of ``blocks``.
_ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda b: (-b.size, b.start),
    lambda b: (b.start, -b.size),
    lambda b: (-b.size * (b.end - b.start + 1), b.start),
    lambda b: (b.start - b.end, -b.size),
    lambda b: (-b.end, -b.size),
)


def peak_live_bytes(blocks: Sequence[Block]) -> int:
    """The peak of live bytes: a lower bound for any plan."""
    events: dict[int, list[tuple[bool, int]]] = {}
    for block in blocks:
        events.setdefault(block.start, []).append((True, block.size))
        events.setdefault(block.end + 1, []).append((False, block.size))
    alive = highest = 0
    for at in sorted(events):
        alive += sum(size if starts else -size for starts, size in events[at])
        highest = max(highest, alive)
    return highest


def _first_fit(order: Sequence[Block], alignment: int) -> int:
    """First fit in this order: the lowest gap between blocks that are live at the same time."""
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
        insort(placed, block, key=_block_offset)
        total = max(total, at + block.size)
    return total


def _block_offset(block: Block) -> int:
    return block.offset
