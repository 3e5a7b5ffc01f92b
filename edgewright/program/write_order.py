"""The order of writes to state at the end of a method: what reads a buffer's old contents comes before its write."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.ir.graph import Op, Value

Update = tuple[Value, Value]  # state (or a mutated input), and its new contents


def in_order(updates: Sequence[Update]) -> tuple[list[Op], list[Update]]:
    """The updates in an order in which none overwrites what a later one reads; where each reads what another writes,
    copies to be made first."""
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
