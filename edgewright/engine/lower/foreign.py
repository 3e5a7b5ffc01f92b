"""Lowerings of operators that are not core's, by their rules (``ir/int_rules.py``), imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.ir.int_arithmetic import IntRangeError
from edgewright.ir.int_rules import (
    ELEMENTWISE,
    AccumulatorConv,
    ArgMaxReduction,
    BatchedGather,
    BatchedScatter,
    BilinearResize,
    FixedPointSoftmax,
    FloatConversion,
    IndexGather,
    IntReduction,
    describe,
)


class ForeignDispatch(Lowering):
    """Operators of other dialects, and core operators with a ``scaling``. Most graphs have none and never load them."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind.startswith("core."):
            candidates = _scaled() if "scaling" in op.args else ()
        else:
            candidates = _elementwise() if op.kind in ELEMENTWISE else ()
        lowering = next((found for candidate in candidates if (found := candidate.accept(node, context))), None)
        return lowering or (_described(node, context) if len(node.ops) == 1 else None)


def _described(node: Node, context: LoweringContext) -> Lowering | None:
    description = describe(node.op, context.numerics)
    for candidate in _lowerings().get(type(description), ()):
        try:
            lowering = candidate.accept_description(node, description)
        except IntRangeError:
            continue
        if lowering is not None:
            return lowering
    return None


@cache
def _scaled() -> Sequence[type[Lowering]]:
    from edgewright.engine.lower.int16_conv import Int16Conv, Int16DepthwiseConv
    from edgewright.engine.lower.int_matmul import IntMatMul

    return (Int16Conv, Int16DepthwiseConv, IntMatMul)


@cache
def _elementwise() -> Sequence[type[Lowering]]:
    from edgewright.engine.lower.int16_table import Int16Table
    from edgewright.engine.lower.int_elementwise import IntElementwise

    return (IntElementwise, Int16Table)


@cache
def _lowerings() -> Mapping[type, Sequence[type[DescribedLowering]]]:
    from edgewright.engine.lower.argmax import Int32ArgMax
    from edgewright.engine.lower.int8_softmax import Int8Softmax
    from edgewright.engine.lower.int_conv import IntAccumulatorConv
    from edgewright.engine.lower.int_elementwise import Conversion
    from edgewright.engine.lower.int_reduce import IntReduce
    from edgewright.engine.lower.int_resize import IntResize
    from edgewright.engine.lower.row_gather import BatchedRowGather, BatchedRowScatter
    from edgewright.engine.lower.static_gather import TableGather

    return {
        AccumulatorConv: (IntAccumulatorConv,),
        ArgMaxReduction: (Int32ArgMax,),
        BatchedGather: (BatchedRowGather,),
        BatchedScatter: (BatchedRowScatter,),
        BilinearResize: (IntResize,),
        FixedPointSoftmax: (Int8Softmax,),
        FloatConversion: (Conversion,),
        IntReduction: (IntReduce,),
        IndexGather: (TableGather,),
    }
