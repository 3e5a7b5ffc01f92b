"""Conversion of small NCHW float32 images to NHWC, optionally with quantization to int8."""

from __future__ import annotations

from dataclasses import replace

from edgewright.engine.codegen.requant import affine_of, clamp_limits
from edgewright.engine.graph.nodes import Node, is_float32, is_quantized8
from edgewright.engine.kernels.move import PlanesSpec, emit_planes_to_channels_last
from edgewright.engine.lower.base import Lowering, LoweringContext


class PlanesToChannelsLast(Lowering):
    """permute (0, 2, 3, 1) of two to four float32 channels, alone or after a conversion to int8."""

    exact_reads = True
    any_strides = False

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        last = node.ops[-1]
        if last.kind != "core.permute" or list(last.args["dims"]) != [0, 2, 3, 1] or len(node.ops) > 2:
            return None
        x = next(node.op.inputs())
        _, channels, _, wide = x.bound
        if not is_float32(x) or x.constant or not 2 <= channels <= 4 or wide < context.isa.lanes or x.bound[0] > 1024:
            return None
        if len(node.ops) == 1:
            return cls(node) if is_float32(node.out) else None
        return (
            cls(node)
            if node.op.kind == "core.convert" and is_quantized8(node.out.q) and node.middle.q == node.out.q
            else None
        )

    def emit(self, context: LoweringContext) -> None:
        (x,) = self.node.reads()
        data, out = context.storage(x), context.storage(self.node.out)
        batch, channels, high, wide = (int(n) for n in x.bound)
        steps = data.layout.strides
        planes = PlanesSpec(channels, wide, steps[1], steps[2], out.layout.row, out.layout.pixel)
        if self.node.out.q is not None:
            q = self.node.out.q
            bounds = clamp_limits(context.numerics, q, None)
            planes = replace(planes, affine=affine_of(q), low=bounds[0], high=bounds[1])
        lanes = context.isa.lanes
        name = context.kernel(
            "to_channels_last", planes, lambda module, name: emit_planes_to_channels_last(module, name, lanes, planes)
        )
        for n in range(batch):
            slots = [data.at(n * steps[0]), out.at(n * out.layout.image)]
            context.step(name, slots, high, high * wide * channels * 0.12)
