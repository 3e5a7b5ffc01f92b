"""What lowerings of convolutions have in common, whatever their elements are."""

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
    """A convolution, whose image may need pixels around it."""

    def __init__(self, node: Node, conv: ConvGeometry) -> None:
        super().__init__(node)
        self.conv = conv

    def required_border(self) -> tuple[Value, Border] | None:
        return (self.node.op.args["input"], self.conv.border) if self.conv.border else None


class ConvTransposeLowering(Lowering):
    """conv_transpose2d: a plain convolution for each of the outputs that lie ``stride`` apart."""

    def __init__(self, node: Node, parts: Sequence[ConvLowering]) -> None:
        super().__init__(node)
        self.parts = parts

    def required_border(self) -> tuple[Value, Border] | None:
        joined = Border()
        for part in self.parts:
            joined = joined.joined(part.conv.border)
        return (self.node.op.args["input"], joined) if joined else None

    def emit(self, context: LoweringContext) -> None:
        for part in self.parts:
            part.emit(context)


def emit_depthwise_steps(
    context: LoweringContext, low: ConvLowering, kind: str, row: object, emit_row: Callable[[Module], Function],
    weights: KernelArg, nanoseconds: float,
) -> None:  # fmt: skip
    """A step for each image, of rows that ``emit_row`` makes; ``row`` says what they depend on."""
    conv, node = low.conv, low.node
    homes = [context.home(v) for v in (node.op.args["input"], node.out, node.second or node.out)]
    data, out, second = (h.layout for h in homes)
    steps = (data.row, conv.stride[0], out.row, second.row, conv.dilation[0])

    def build(module: Module, name: str) -> None:
        emit_depthwise(module, name, emit_row(module), conv.kernel[0], *steps)

    name = context.kernel(kind, (row, steps), build)
    corner = -conv.border.top * data.row - conv.border.left * data.pixel
    for n in range(conv.images):
        slots = [homes[0].at(corner + n * data.image), weights, homes[1].at(n * out.image),
                 homes[2].at(n * second.image)]  # fmt: skip
        context.step(name, slots, conv.size[0], nanoseconds / conv.images, conv.macs // conv.images)
