"""Lowerings of vendor-dialect operators that no core lowering covers, imported on first use."""

from __future__ import annotations

from functools import cache

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext


class VendorDispatch(Lowering):
    """Tries the lowerings of this group; most graphs never load them."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind.startswith("core.") and "scaling" not in op.args:
            return None
        return next(
            (lowering for candidate in _lowerings() if (lowering := candidate.accept(node, context)) is not None), None
        )


@cache
def _lowerings() -> list[type[Lowering]]:
    from edgewright.engine.lower.argmax import ArgMax
    from edgewright.engine.lower.int8_softmax import Int8Softmax
    from edgewright.engine.lower.int16_conv import Int16Conv, Int16DepthwiseConv
    from edgewright.engine.lower.int16_table import Int16Table
    from edgewright.engine.lower.int_conv import IntAccumulatorConv
    from edgewright.engine.lower.int_elementwise import EnnConversion, IntElementwise, QnnConversion
    from edgewright.engine.lower.int_matmul import IntMatMul
    from edgewright.engine.lower.int_reduce import IntReduce
    from edgewright.engine.lower.int_resize import IntResize
    from edgewright.engine.lower.int_rows import DenseIntNorm, IntNorm, IntSoftmax
    from edgewright.engine.lower.row_gather import TosaGather, TosaScatter
    from edgewright.engine.lower.static_gather import VendorStaticGather

    return [
        Int16Conv, Int16DepthwiseConv, IntElementwise, Int16Table, QnnConversion, IntReduce, Int8Softmax, IntMatMul,
        VendorStaticGather, IntResize, TosaGather, TosaScatter, ArgMax, IntAccumulatorConv, EnnConversion, IntSoftmax,
        IntNorm, DenseIntNorm,
    ]  # fmt: skip
