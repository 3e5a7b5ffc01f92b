"""QNN's operators as the engine's; what it has no way for stays what it is: a step of the reference.

Integers are what the reference makes of them, bit for bit. Real numbers are rounded to half precision where it rounds
them; sums before that are in the engine's order.
"""

from __future__ import annotations

from edgewright.engine.dialects import (  # noqa: F401  (their rules)
    qnn_conv,
    qnn_conv3d,
    qnn_elementwise,
    qnn_float,
    qnn_gather,
    qnn_grid_sample,
    qnn_image,
    qnn_move,
    qnn_norm,
    qnn_reduce,
)
from edgewright.engine.dialects.qnn_rewrite import QnnRewrite, io_of, is_float32, rule
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics
from edgewright.ir.qnn.binary import in_fixed_point

_SUMS = {"Add": "add", "Subtract": "sub"}


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = QnnRewrite(graph)
    for op in graph.ops:
        if op not in made.done:
            moved = made.rounded(op)
            rule.apply(made, moved)
            made.halves.update({v: v for v in op.outputs if moved is not op and v is not None and is_float32(v)})
    return made.finish()


@rule("ElementWiseAdd", "ElementWiseSubtract")
def _sum(made: QnnRewrite, op: Op) -> bool:
    """Sums of bytes, which end convolutions."""
    (a, b), _ = io_of(op)
    name = op.kind.partition("ElementWise")[2]
    if not in_fixed_point(op):
        return qnn_float.BINARY[name](made, op)
    limits, last = qnn_conv.fuse_activation(made, op)
    made.emit(_SUMS[name], op, last, self=a, other=b, limits=limits)
    return True
