"""Legalization: rewrites operators that a backend supports only in another form, after partitioning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgewright.ir.graph import Graph, GraphError, Op

Legalize = Callable[[Op, Any], "list[Op] | None"]
_ROUNDS = 8  # rewrites may chain; more rounds than this mean a cycle


def legalize(graph: Graph, rows: Mapping[str, Any], target: Any) -> None:
    """Apply the rewrites of the backend's rows until none applies. A rewrite must not need new scales."""
    for _ in range(_ROUNDS):
        ops: list[Op] = []
        changed = False
        for op in graph.ops:
            rewrite: Legalize | None = rows[op.kind].legalize
            rewritten = rewrite(op, target) if rewrite is not None else None
            changed |= rewritten is not None
            ops += [op] if rewritten is None else rewritten
        graph.ops = ops
        if not changed:
            return
    raise GraphError(graph.name, f"must be legal after {_ROUNDS} rounds of rewriting")
