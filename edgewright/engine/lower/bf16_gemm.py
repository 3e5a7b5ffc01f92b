"""Float32 linear layers and pointwise convolutions with operands rounded to bf16.

Enabled by ``EDGEWRIGHT_BF16`` on CPUs with bf16 dot products, which multiply two pairs per lane; accumulators stay
float32. A pair of bf16 elements is as large as a float32 one, so only the inner product differs from ``FloatConv``.
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

_MIN_DEPTH = 16  # input channels from which rounding the input pays


class Bf16Gemm(FloatConv):
    """linear and pointwise conv2d on bf16 pairs."""

    pairs = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        float_conv = FloatConv.accept(node, context) if context.isa.bf16 else None
        if not isinstance(float_conv, FloatConv):
            return None
        conv = float_conv.conv
        if not conv.is_gemm or conv.groups > 1 or conv.inputs % 2 or conv.inputs < _MIN_DEPTH:
            return None
        return cls(node, replace(conv, inputs=conv.inputs // 2), _bf16_pairs(float_conv.filters))

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [dense_layout(self.node.op.args["input"].bound, 2).size]

    def source(self, context: LoweringContext) -> Storage:
        """The input rounded to bf16 in the arena, viewed as pairs."""
        data = context.storage(self.node.op.args["input"])
        address, shape = Address("arena", context.temporaries[0]), data.layout.shape
        rounded = Value("rounded", np.dtype(np.int16), shape, tuple(range(len(shape))))

        def body(f: Function, regs: list[Reg]) -> Reg:
            return round_to_bf16(f, regs[0])

        emit_elementwise(context, "bf16_round", [data], Storage(rounded, address, dense_layout(shape, 2)), (), body)
        context.barrier = True
        return Storage(rounded, address, dense_layout((*shape[:-1], shape[-1] // 2), 4))


def _bf16_pairs(filters: Array) -> Array:
    """Filters as [..., elements / 2], each element the bits of a bf16 pair."""
    return np.ascontiguousarray(filters.astype(bfloat16)).view(np.float32)
