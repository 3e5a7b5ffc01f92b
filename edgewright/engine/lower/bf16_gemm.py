"""Convolutions and linear layers of real numbers whose operands are rounded to 16 bits: two products an instruction.

Only where ``EDGEWRIGHT_BF16`` asks for it, and the processor has the instruction; sums stay in single precision. A pair
of 16-bit numbers is as large as a number of single precision, so that everything but the product itself is as there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg
from edgewright.engine.graph.layout import Home, dense
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Context, Lowering
from edgewright.engine.lower.conv import RealProduct
from edgewright.engine.lower.elementwise import element_wise
from edgewright.engine.lower.fp16_convert import store_brain
from edgewright.engine.plan import Place
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Array, Value

_LEAST = 16  # elements of a row that are worth being rounded


class PairProduct(RealProduct):
    """linear, and pointwise convolutions."""

    pairs = True

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        made = RealProduct.accept(node, context) if context.isa.bf16 else None
        if not isinstance(made, RealProduct):
            return None
        conv = made.conv
        if not conv.flat or conv.groups > 1 or conv.inputs % 2 or conv.inputs < _LEAST:
            return None
        return cls(node, replace(conv, inputs=conv.inputs // 2), _paired(made.filters))

    def temporaries(self, context: Context) -> list[int]:
        return [dense(self.node.op.args["input"].bound, 2).size]

    def source(self, context: Context) -> Home:
        """The input rounded to 16 bits, two taken for one element."""
        data = context.home(self.node.op.args["input"])
        place, shape = Place("arena", context.temporaries[0]), data.layout.shape
        rounded = Value("rounded", np.dtype(np.int16), shape, tuple(range(len(shape))))

        def body(f: Function, given: list[Reg]) -> Reg:
            return store_brain(f, given[0])

        element_wise(context, "rounded", [data], Home(rounded, place, dense(shape, 2)), (), body)
        context.barrier = True
        return Home(rounded, place, dense((*shape[:-1], shape[-1] // 2), 4))


def _paired(filters: Array) -> Array:
    """[..., elements / 2], each the bits of two."""
    return np.ascontiguousarray(filters.astype(bfloat16)).view(np.float32)
