"""Shared parts of convolution lowerings, independent of the element type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Border
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.depthwise import emit_depthwise
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv_geometry import ConvGeometry
from edgewright.engine.plan import KernelArg
from edgewright.ir.graph import Value


class ConvLowering(Lowering):
    """A convolution whose input image may need a border of padding pixels."""

    def __init__(self, node: Node, conv: ConvGeometry) -> None:
        super().__init__(node)
        self.conv = conv

    def required_border(self) -> tuple[Value, Border] | None:
        return (self.node.op.args["input"], self.conv.border) if self.conv.border else None


class ConvTransposeLowering(Lowering):
    """conv_transpose2d as plain convolutions, one per phase: the outputs ``stride`` apart that use the same taps."""

    def __init__(self, node: Node, phases: Sequence[ConvLowering]) -> None:
        super().__init__(node)
        self.phases = phases

    def required_border(self) -> tuple[Value, Border] | None:
        border = Border()
        for phase in self.phases:
            border = border.union(phase.conv.border)
        return (self.node.op.args["input"], border) if border else None

    def emit(self, context: LoweringContext) -> None:
        for phase in self.phases:
            phase.emit(context)


def emit_depthwise_steps(
    context: LoweringContext, lowering: ConvLowering, kind: str, row: object, emit_row: Callable[[Module], Function],
    weights: KernelArg, nanoseconds: float,
) -> None:  # fmt: skip
    """Emit one step per image, parallel over output rows; ``emit_row`` emits the row function, ``row`` is its key."""
    conv, node = lowering.conv, lowering.node
    storages = [context.storage(v) for v in (node.op.args["input"], node.out, node.residual or node.out)]
    data, out, second = (h.layout for h in storages)
    steps = (data.row, conv.stride[0], out.row, second.row, conv.dilation[0])

    def build(module: Module, name: str) -> None:
        emit_depthwise(module, name, emit_row(module), conv.kernel[0], *steps)

    name = context.kernel(kind, (row, steps), build)
    corner = -conv.border.top * data.row - conv.border.left * data.pixel
    for n in range(conv.images):
        slots = [storages[0].at(corner + n * data.image), weights, storages[1].at(n * out.image),
                 storages[2].at(n * second.image)]  # fmt: skip
        context.step(name, slots, conv.size[0], nanoseconds / conv.images, conv.macs // conv.images)
