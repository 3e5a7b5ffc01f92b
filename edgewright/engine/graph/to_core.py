"""Translation of other dialects' graphs to core operators before they are compiled.

A dialect's ``to_core`` translates what it can. Of the operators that it leaves, elementwise integer operators are
compiled from the dialect's rules (``ir/int_rules.py``); everything else runs as a step of the numpy
reference.
"""

from __future__ import annotations

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.graph.validate import SHAPE_RULES, Shape
from edgewright.ir.dialect import dialects_of
from edgewright.ir.graph import Graph, Op
from edgewright.ir.int_rules import ELEMENTWISE, elementwise_operands
from edgewright.ir.numerics import Numerics


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    """Translate the graph as far as possible. A graph that already contains core operators is returned unchanged."""
    dialects = list(dialects_of(graph, find_dialect))
    for dialect in dialects:
        dialect.load_rules()
    for kind in {op.kind for op in graph.ops if not op.kind.startswith("core.")}:
        SHAPE_RULES.setdefault(kind, _broadcast_shape if kind in ELEMENTWISE else _declared_shape)
    if len(dialects) == 1 and all(op.kind.startswith(dialects[0].prefix) for op in graph.ops):
        return dialects[0].to_core(graph, numerics)
    return graph


def _declared_shape(op: Op) -> Shape:
    """The shape the graph declares; reference steps check it when they run."""
    out = op.outputs[0]
    return () if out is None else out.bound


def _broadcast_shape(op: Op) -> Shape:
    return np.broadcast_shapes(*(v.bound for v in elementwise_operands(op)))
