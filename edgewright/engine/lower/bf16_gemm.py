"""Convolutions and linear layers of real numbers whose operands are rounded to 16 bits: two products an instruction.

Only where ``EDGEWRIGHT_BF16`` asks for it, and the processor has the instruction; sums stay in single precision. A pair
of 16-bit numbers is as large as a number of single precision, so that everything but the product itself is as there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg
from edgewright.engine.graph.layout import Storage, dense_layout
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import FloatConv
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.engine.lower.fp16_convert import round_to_bf16
from edgewright.engine.plan import Address
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Array, Value

_LEAST = 16  # elements of a row that are worth being rounded


class Bf16Gemm(FloatConv):
    """linear, and pointwise convolutions."""

    pairs = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        made = FloatConv.accept(node, context) if context.isa.bf16 else None
        if not isinstance(made, FloatConv):
            return None
        conv = made.conv
        if not conv.flat or conv.groups > 1 or conv.inputs % 2 or conv.inputs < _LEAST:
            return None
        return cls(node, replace(conv, inputs=conv.inputs // 2), _paired(made.filters))

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [dense_layout(self.node.op.args["input"].bound, 2).size]

    def source(self, context: LoweringContext) -> Storage:
        """The input rounded to 16 bits, two taken for one element."""
        data = context.home(self.node.op.args["input"])
        place, shape = Address("arena", context.temporaries[0]), data.layout.shape
        rounded = Value("rounded", np.dtype(np.int16), shape, tuple(range(len(shape))))

        def body(f: Function, given: list[Reg]) -> Reg:
            return round_to_bf16(f, given[0])

        emit_elementwise(context, "rounded", [data], Storage(rounded, place, dense_layout(shape, 2)), (), body)
        context.barrier = True
        return Storage(rounded, place, dense_layout((*shape[:-1], shape[-1] // 2), 4))


def _paired(filters: Array) -> Array:
    """[..., elements / 2], each the bits of two."""
    return np.ascontiguousarray(filters.astype(bfloat16)).view(np.float32)
