"""Normalization and softmax in float32."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.norm_softmax import NormSpec, emit_norm, emit_softmax
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.ir.graph import Op

# ----------------------------------------------------------------------------------------------------------------- norm

# Layer, RMS, group and instance norm in float32.


def _norm(op: Op) -> NormSpec | None:
    x, params = op.args["input"], [op.args.get(n) for n in ("weight", "bias")]
    weight, bias = (v is not None for v in params)
    if op.kind in ("core.layer_norm", "core.rms_norm"):
        length = math.prod(int(n) for n in op.args["normalized_shape"])
        eps = op.args.get("eps")
        eps = float(np.finfo(np.float32).eps) if eps is None else float(eps)
        return NormSpec(length, op.kind == "core.layer_norm", eps, weight, bias)
    if op.kind != "core.group_norm":
        return None
    _, channels, *size = (int(n) for n in x.bound)
    channel_size, groups = math.prod(size), int(op.args["num_groups"])
    return NormSpec(channels // groups * channel_size, True, float(op.args["eps"]), weight, bias, channel_size, groups)


class Normalize(DenseLowering):
    """Normalization of dense float32 rows."""

    def __init__(self, node: Node, norm: NormSpec) -> None:
        super().__init__(node)
        self.norm = norm

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if (
            op.kind not in ("core.layer_norm", "core.rms_norm", "core.group_norm")
            or len(node.ops) > 1
            or len(op.outputs) > 1
        ):
            return None
        norm = _norm(op)
        supported = norm is not None and all(is_float32(v) for v in (*op.inputs(), node.out))
        return cls(node, norm) if supported and norm is not None else None

    def emit(self, context: LoweringContext) -> None:
        op, norm, lanes = self.node.op, self.norm, context.isa.lanes
        data, out = context.storage(op.args["input"]), context.storage(self.node.out)
        assert data.layout.dense and out.layout.dense
        name = context.kernel("norm", norm, lambda module, name: emit_norm(module, name, lanes, norm))
        factors = [data if v is None else context.storage(v) for v in (op.args.get("weight"), op.args.get("bias"))]
        rows = math.prod(out.layout.shape) // norm.length
        context.step(name, [data.at(), out.at(), *(h.at() for h in factors)], rows, rows * norm.length * 0.2)


# -------------------------------------------------------------------------------------------------------------- softmax

# Softmax in float32 along the last dimension.


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
