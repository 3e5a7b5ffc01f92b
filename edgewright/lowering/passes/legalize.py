"""Rows' own rewrites: an operator that a backend takes in another form becomes that form, after partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgewright.ir.graph import Graph, GraphError, Op

Legalize = Callable[[Op, Any], "list[Op] | None"]
_ROUNDS = 8  # a rewrite may give what another rewrites; more than this many after each other is a circle


def legalize(graph: Graph, rows: Mapping[str, Any], target: Any) -> None:
    """Rewrite every operator whose row says how, until none does. Rewrites must need no new scale."""
    for _ in range(_ROUNDS):
        ops: list[Op] = []
        changed = False
        for op in graph.ops:
            rewrite: Legalize | None = rows[op.kind].legalize
            made = rewrite(op, target) if rewrite is not None else None
            changed |= made is not None
            ops += [op] if made is None else made
        graph.ops = ops
        if not changed:
            return
    raise GraphError(graph.name, f"must be legal after {_ROUNDS} rounds of rewriting")
