"""Translation of other dialects' graphs to core operators before they are compiled.

Operators on constants alone are evaluated first. A dialect's ``to_core`` translates what it can. Of the operators that
it leaves, elementwise integer operators are compiled from the dialect's rules (``ir/int_rules.py``); everything else
runs as a step of the numpy reference.
"""

from __future__ import annotations

from edgewright.backends.registry import find_dialect
from edgewright.engine.graph.fold_constants import fold_constants
from edgewright.ir.dialect import dialects_of
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import Numerics


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    """Translate the graph as far as possible. Only constants of a graph that already contains core operators are
    folded."""
    dialects = list(dialects_of(graph, find_dialect))
    for dialect in dialects:
        dialect.load_rules()
    graph = fold_constants(graph, numerics, find_dialect)
    if len(dialects) == 1 and all(op.kind.startswith(dialects[0].prefix) for op in graph.ops):
        return dialects[0].to_core(graph, numerics)
    return graph
