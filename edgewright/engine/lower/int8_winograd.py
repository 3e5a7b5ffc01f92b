"""3x3 convolutions of bytes of stride 1, by Winograd's way where it is faster: the same sums, to the last bit."""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Border
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import int8_winograd
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.winograd import Outputs, Patches, Points, emit_patches
from edgewright.engine.lower.base import Context, Lowering
from edgewright.engine.lower.conv_geometry import Convolution
from edgewright.engine.lower.int8_conv import ByteProduct
from edgewright.engine.lower.int8_params import Numbers
from edgewright.engine.lower.winograd import Sizes, Work, reach, simple_window
from edgewright.ir.graph import Value

_INSIDE = 640 << 10  # bytes of weights that stay in the second cache while tile rows go by
_STREAMED = 8 << 20  # bytes of weights that take longer to fetch than the products they save
_WASTE = 1.4  # outputs computed for each that is wanted, at most


def sizes(conv: Convolution) -> Sizes:
    high, wide = (-(-n // 4) for n in conv.size)
    return Sizes(4, high, wide, 1 if conv.inputs * conv.outputs * 72 <= _INSIDE else high)


class ByteWinograd(ByteProduct):
    """conv2d."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        made = ByteProduct.accept(node, context) if node.op.kind == "conv2d" else None
        if not isinstance(made, ByteProduct) or not simple_window(made.conv):
            return None
        conv, lanes, cut = made.conv, context.isa.lanes, sizes(made.conv)
        if conv.inputs % (2 * lanes) or conv.outputs % (4 * lanes) or conv.inputs < 64:
            return None
        if int8_winograd.largest(made.numbers.filters) >= int8_winograd.LIMIT:
            return None
        wasteful = cut.high * cut.wide * 16 > _WASTE * conv.size[0] * conv.size[1]
        usual = not wasteful and conv.inputs * conv.outputs * 72 <= _STREAMED
        spec = ("winograd", conv, made.numbers.ending)
        return (
            cls(node, conv, made.numbers, cut) if context.choices.pick(node, "way", spec, (usual, not usual)) else None
        )

    def __init__(self, node: Node, conv: Convolution, numbers: Numbers, cut: Sizes | None = None) -> None:
        super().__init__(node, conv, numbers)
        self.cut = cut or sizes(conv)

    def border(self) -> tuple[Value, Border] | None:
        return reach(self.node.op.args["input"], self.cut, self.conv.border)

    def tight(self) -> Value | None:
        return None

    def temporaries(self, context: Context) -> list[int]:
        if self.cut.band == 1:
            return []
        tiles = self.cut.points * self.cut.high * self.cut.wide
        return [tiles * self.conv.inputs * 2, tiles * self.conv.outputs * 4]

    def emit(self, context: Context) -> None:
        numbers, lanes = self.numbers, context.isa.lanes
        work = ByteWork(context, self)
        size = 72 * self.conv.inputs * self.conv.outputs
        weights = context.weights.reserve(
            size, lambda room: int8_winograd.pack(room, lanes, numbers.filters, work.vectors), numbers.filters
        )
        ends = int8_winograd.pack_ends(lanes, numbers.bias, np.ascontiguousarray(numbers.factors), numbers.notes.pack())
        place = context.weights.add(ends)
        for n in range(self.conv.images):
            work.emit(n, weights, place)


class ByteWork(Work):
    rate = 100.0

    def __init__(self, context: Context, way: ByteWinograd) -> None:
        super().__init__(context, way.node, way.conv, way.cut)
        conv, cut, lanes = self.conv, self.cut, context.isa.lanes
        tiles = cut.band * cut.wide
        data, out, second = self.data.layout, self.out.layout, self.second.layout
        self.patches = Patches(4, cut.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 2, 2)
        results = Patches(4, cut.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = Outputs(results, conv.size[1], second.row, second.pixel)
        self.vectors, largest = (2, 14) if context.isa.registers >= 32 else (2, 4)
        self.points = Points(36, tiles, largest, 2 * conv.inputs, self.patches.point, results.point)
        columns = self.vectors * lanes
        self.panels, self.panel = conv.outputs // columns, 2 * conv.inputs * columns
        self.width, self.size = 4 * columns, 2 * conv.inputs * conv.outputs
        self.key, self.ends = ("bytes", self.vectors, conv.inputs), way.numbers.ending
        self.ending = way.numbers.ending

    def emit_patches(self, module: Module) -> Function:
        return emit_patches(module, 2 * self.context.isa.lanes, self.patches)

    def emit_outputs(self, module: Module) -> Function:
        return int8_winograd.emit_outputs(module, self.context.isa.lanes, self.outputs, self.ending)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        window = Window((), self.conv.inputs // 2, 2 * self.conv.inputs)
        out = 4 * self.conv.outputs
        isa, sizes = self.context.isa, self.points.sizes
        return [{size: int8_winograd.emit_tile(module, isa, size, self.vectors, window, out) for size, _ in sizes}]
