"""Translation of QNN operators to core operators; unsupported ones stay as they are and run as reference steps.

Integers are bit-exact with the reference. Floats are rounded to fp16 where the reference rounds them; sums before that
use the engine's order.
"""

from __future__ import annotations

from edgewright.backends.qualcomm.dialect.elementwise import is_fixed_point
from edgewright.backends.qualcomm.dialect.to_core import conv, float32, image, move, norm  # noqa: F401  (register their rules)
from edgewright.backends.qualcomm.dialect.to_core.rewrite import QnnRewrite, io_of, is_float32, rule
from edgewright.backends.qualcomm.dialect.to_core.scalars import restore_scalars, without_scalars
from edgewright.ir.graph import Graph, Op
from edgewright.ir.numerics import Numerics

_SUMS = {"Add": "core.add", "Subtract": "core.sub"}


def to_core(graph: Graph, numerics: Numerics) -> Graph:
    plain, vectors = without_scalars(graph)
    rw = QnnRewrite(plain)
    for op in plain.ops:
        if op not in rw.done:
            rounded_op = rw.round_inputs(op)
            rule.apply(rw, rounded_op)
            rw.rounded.update({v: v for v in op.outputs if rounded_op is not op and v is not None and is_float32(v)})
    return restore_scalars(graph, rw.finish(), vectors)


@rule("ElementWiseAdd", "ElementWiseSubtract")
def _add_sub(rw: QnnRewrite, op: Op) -> bool:
    """Int8 sums in fixed point, which can be fused into convolutions; others in float32."""
    (a, b), _ = io_of(op)
    name = op.kind.partition("ElementWise")[2]
    if not is_fixed_point(op):
        return float32.BINARY[name](rw, op)
    limits, last = conv.fuse_activation(rw, op)
    rw.emit(_SUMS[name], op, last, self=a, other=b, limits=limits)
    return True
