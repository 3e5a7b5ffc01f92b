"""Graph passes: functions that modify a graph. ``apply`` verifies the graph after each."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.ir.aten.dialect import ATEN
from edgewright.ir.graph import Graph
from edgewright.ir.verify import verify


def apply(graph: Graph, *passes: Callable[[Graph], None]) -> Graph:
    """Run ``passes`` in order, with ``verify`` after each. Sizes computed outside the graph may be read in it."""
    defined = {v for op in graph.ops for v in op.outputs}
    sizes = frozenset(v for op in graph.ops for v in op.inputs() if v.dtype is None and v not in defined)
    for graph_pass in passes:
        graph_pass(graph)
        verify(graph, ATEN, sizes)
    return graph
