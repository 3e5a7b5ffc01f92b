"""Order of the state writes at the end of a method: reads of a buffer's old contents precede its write."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.ir.graph import Op, Value

Update = tuple[Value, Value]  # state (or a mutated input), and its new contents


def sequentialize_updates(updates: Sequence[Update]) -> tuple[list[Op], list[Update]]:
    """Order the updates so that none overwrites what a later one reads.

    This is the parallel-copy problem of SSA deconstruction: an update is ready when no other pending one reads its
    target; a cycle is broken by copying one source first (Boissinot et al., "Revisiting Out-of-SSA Translation for
    Correctness, Code Quality, and Efficiency", CGO 2009). Returns the copies and the ordered updates.
    """
    pending, copies, ordered = list(updates), list[Op](), list[Update]()
    while pending:
        ready = [u for u in pending if not any(source is u[0] for target, source in pending if target is not u[0])]
        if not ready:
            target, source = pending[0]
            copy = Value(f"{source.name}_old", source.dtype, source.shape, source.dim_order)
            copies.append(Op("aten.clone.default", {"self": source, "memory_format": None}, [copy]))
            pending[0] = target, copy
            continue
        ordered += ready[:1]
        pending.remove(ready[0])
    return copies, ordered
