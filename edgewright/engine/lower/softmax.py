"""Softmax in float32 along the last dimension."""

from __future__ import annotations

import math

from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.norm_softmax import emit_softmax
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused


class Softmax(DenseLowering):
    """softmax along the last dimension."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not is_unfused(node, "core.softmax") or not node.out.bound:
            return None
        return cls(node) if is_float32(node.op.args["self"]) and is_float32(node.out) else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.node.op.args["self"]), context.storage(self.node.out)
        length, lanes = out.layout.shape[-1], context.isa.lanes
        assert data.layout.dense and out.layout.dense
        name = context.kernel("softmax", length, lambda module, name: emit_softmax(module, name, lanes, length))
        rows = math.prod(out.layout.shape[:-1])
        context.step(name, [data.at(), out.at()], rows, rows * length * 2.0)
