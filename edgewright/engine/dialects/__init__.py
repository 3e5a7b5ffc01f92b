"""Translation of vendor dialects (``tflite.CONV_2D``, ``tosa.conv2d``) to the engine's core operators.

Data movement, convolutions and max pooling become core operators. Elementwise integer operators keep their kind and are
compiled from the rules that ``<dialect>_elementwise.py`` registers. Everything else stays as it is and runs as a step
of the numpy reference.
"""

from __future__ import annotations

from importlib import import_module

from edgewright.engine.graph.validate import SHAPE_RULES, Shape
from edgewright.ir.core.execute import DIALECTS
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics


def translate(graph: Graph, numerics: Numerics) -> Graph:
    """Translate the graph as far as possible. A graph that already contains core operators is returned unchanged.

    Modules of a dialect are imported when the first of its operators appears: most graphs have none.
    """
    for dialect in DIALECTS:
        if any(op.kind.startswith(f"{dialect}.") for op in graph.ops):
            import_module(f"edgewright.engine.dialects.{dialect}_elementwise")  # registers its rules
    for kind in {op.kind for op in graph.ops if not op.kind.startswith("core.")}:
        SHAPE_RULES.setdefault(kind, _broadcast_shape if _is_elementwise(kind) else _declared_shape)
    for dialect in DIALECTS:
        if graph.ops and all(op.kind.startswith(f"{dialect}.") for op in graph.ops):
            translated: Graph = import_module(f"edgewright.engine.dialects.{dialect}").translate(graph, numerics)
            return translated
    return graph


def _is_elementwise(kind: str) -> bool:
    from edgewright.engine.dialects.elementwise import ELEMENTWISE, TABLE_ONLY

    return kind in ELEMENTWISE or kind in TABLE_ONLY


def _declared_shape(op: Op) -> Shape:
    """The shape the graph declares; reference steps check it when they run."""
    out = op.outputs[0]
    return () if out is None else out.bound


def _broadcast_shape(op: Op) -> Shape:
    import numpy as np

    from edgewright.engine.dialects.elementwise import elementwise_operands

    return np.broadcast_shapes(*(v.bound for v in elementwise_operands(op)))
