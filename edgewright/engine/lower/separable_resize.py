"""Separable resize: weighted sums of a window of neighbors along one dimension."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.separable_resize import SeparableFilterSpec, emit_separable_filter
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused


class SeparableResize(DenseLowering):
    """bands in float32."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if not is_unfused(node, "bands"):
            return None
        return (
            cls(node) if is_float32(op.args["self"]) and is_float32(node.out) and not op.args["self"].constant else None
        )

    def emit(self, context: LoweringContext) -> None:
        op, lanes = self.node.op, context.isa.lanes
        data, out = context.storage(op.args["self"]), context.storage(self.node.out)
        shape, dim = data.layout.shape, int(op.args["dim"])
        starts, counts, weights = (np.asarray(op.args[name].data) for name in ("starts", "counts", "weights"))
        inner = math.prod(shape[dim + 1 :])
        bands = SeparableFilterSpec(shape[dim], inner, len(starts), weights.shape[1])
        name = context.kernel(
            "separable_resize", bands, lambda module, name: emit_separable_filter(module, name, bands, lanes)
        )
        tables = [np.ascontiguousarray(a) for a in (starts.astype(np.int32), counts.astype(np.int32), weights)]
        units = math.prod(shape[:dim]) * len(starts)
        slots = [data.at(), out.at(), *(context.weights.add(t) for t in tables)]
        work = math.prod(shape[:dim]) * inner * float(counts.sum())
        context.step(name, slots, units, work * (0.15 if inner >= lanes else 1.0))
