"""Graph passes. Each is a function that changes a graph; ``apply`` checks the graph after every one."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.ir.graph import Graph, verify


def apply(graph: Graph, *passes: Callable[[Graph], None]) -> Graph:
    """Run ``passes`` in order, with ``verify`` after each. Sizes computed outside of the graph may be read in it."""
    made = {v for op in graph.ops for v in op.outputs}
    sizes = frozenset(v for op in graph.ops for v in op.inputs() if v.dtype is None and v not in made)
    for change in passes:
        change(graph)
        verify(graph, sizes)
    return graph
