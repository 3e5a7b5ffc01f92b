"""Graphs of vendors' operators (``tflite.CONV_2D``, ``tosa.conv2d``), for an engine that has its own.

What moves elements, convolutions and largest-of windows become the engine's operators. What works on single elements
is done by ``tosa_elements.py`` and the like, and what neither does stays what it is: a step of the reference.
"""

from __future__ import annotations

from importlib import import_module

from edgewright.engine.graph.validate import SHAPE_RULES, Shape
from edgewright.ir.core.execute import DIALECTS
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics


def translate(graph: Graph, numerics: Numerics) -> Graph:
    """The graph in the engine's operators, as far as there are any. One that has some of them is translated already.

    What knows a vendor's operators is loaded when the first of them is met: most graphs have none.
    """
    for dialect in DIALECTS:
        if any(op.kind.startswith(f"{dialect}.") for op in graph.ops):
            import_module(f"edgewright.engine.dialects.{dialect}_elementwise")  # it registers what it knows
    for kind in {op.kind for op in graph.ops if "." in op.kind}:
        SHAPE_RULES.setdefault(kind, _broadcast if _single(kind) else _itself)
    for dialect in DIALECTS:
        if graph.ops and all(op.kind.startswith(f"{dialect}.") for op in graph.ops):
            made: Graph = import_module(f"edgewright.engine.dialects.{dialect}").translate(graph, numerics)
            return made
    return graph


def _single(kind: str) -> bool:
    """Works on single elements."""
    from edgewright.engine.dialects.elementwise import ELEMENTWISE, TABLE_ONLY

    return kind in ELEMENTWISE or kind in TABLE_ONLY


def _itself(op: Op) -> Shape:
    """Steps of the reference find out when they run."""
    out = op.outputs[0]
    return () if out is None else out.bound


def _broadcast(op: Op) -> Shape:
    import numpy as np

    from edgewright.engine.dialects.elementwise import elementwise_operands

    return np.broadcast_shapes(*(v.bound for v in elementwise_operands(op)))
