"""Lowerings of vendors' operators that the engine has none of its own for."""

from __future__ import annotations

from functools import cache

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Context, Lowering


class Vendor(Lowering):
    """Chooses among them; they are loaded when the first is met, as most graphs have none."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        if "." not in op.kind and "scaling" not in op.args:
            return None
        return next((made for kind in _lowerings() if (made := kind.accept(node, context)) is not None), None)


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.lower.argmax import ArgMax
    from edgewright.engine.lower.enn_conversion import EnnConversion
    from edgewright.engine.lower.int8_softmax import ByteSoftmax
    from edgewright.engine.lower.int16_conv import WordDepthwise, WordProduct
    from edgewright.engine.lower.int16_table import Lookup
    from edgewright.engine.lower.int_conv import Sums
    from edgewright.engine.lower.int_elementwise import WholeMap
    from edgewright.engine.lower.int_matmul import WholeMatMul
    from edgewright.engine.lower.int_reduce import Folded
    from edgewright.engine.lower.int_resize import Mixed
    from edgewright.engine.lower.int_rows import DenseNorm, WholeNorm, WholeSoftmax
    from edgewright.engine.lower.qnn_conversion import QnnConversion
    from edgewright.engine.lower.row_gather import Laid, Taken
    from edgewright.engine.lower.static_gather import Picked

    return [WordProduct, WordDepthwise, WholeMap, Lookup, QnnConversion, Folded, ByteSoftmax, WholeMatMul, Picked,
            Mixed, Taken, Laid, ArgMax, Sums, EnnConversion, WholeSoftmax, WholeNorm, DenseNorm]  # fmt: skip
