"""QNN's operators as the engine's; what it has no way for stays what it is: a step of the reference.

Integers are what the reference makes of them, bit for bit. Real numbers are rounded to half precision where it rounds
them; sums before that are in the engine's order.
"""

from __future__ import annotations

from edgewright.engine.dialects import qnn_elements, qnn_images, qnn_moves, qnn_products  # noqa: F401  (their rules)
from edgewright.engine.dialects.elements import ELEMENTS
from edgewright.engine.dialects.qnn_rewrite import QnnRewrite, byte, ends, real, rule
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics
from edgewright.ir.qnn.pairs import in_fixed_point

_SUMS = {"Add": "add", "Subtract": "sub"}


def translate(graph: Graph, numerics: Numerics) -> Graph:
    made = QnnRewrite(graph)
    for op in graph.ops:
        rule.apply(made, op, _number_alone)
    return made.finish()


def _number_alone(made: QnnRewrite, op: Op) -> bool:
    """A result without dimensions may be made of numbers that have one."""
    given, out = ends(op)
    if op.kind not in ELEMENTS or out.bound or not any(v.bound for v in given):
        return False
    made.emit(op.kind, op, out, **{**op.args, "inputs": [made.view(op, v, ()) for v in given]})
    return True


@rule("ElementWiseAdd", "ElementWiseSubtract")
def _sum(made: QnnRewrite, op: Op) -> bool:
    """Sums of bytes, which end convolutions."""
    (a, b), _ = ends(op)
    if not in_fixed_point(op):
        return False
    limits, last = qnn_products.following(made, op)
    made.emit(_SUMS[op.kind.partition("ElementWise")[2]], op, last, self=a, other=b, limits=limits)
    return True


@rule("Quantize", "Dequantize", "Convert")
def _convert(made: QnnRewrite, op: Op) -> bool:
    (x,), out = ends(op)
    if not (byte(x) and (byte(out) or real(out))) and not (real(x) and byte(out)):
        return False
    made.emit("convert", op, out, self=x)
    return True
