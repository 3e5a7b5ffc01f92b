"""3x3 convolutions of bytes of stride 1, by Winograd's way where it is faster: the same sums, to the last bit."""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.graph.layout import Border
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import int8_winograd
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.winograd import OutputTiles, PatchRow, PointGemm, emit_input_transform
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv_geometry import ConvGeometry
from edgewright.engine.lower.int8_conv import Int8Conv
from edgewright.engine.lower.int8_params import Int8ConvParams
from edgewright.engine.lower.winograd import TileGrid, WinogradEmitter, patch_border, suits_winograd
from edgewright.ir.graph import Value

_INSIDE = 640 << 10  # bytes of weights that stay in the second cache while tile rows go by
_STREAMED = 8 << 20  # bytes of weights that take longer to fetch than the products they save
_WASTE = 1.4  # outputs computed for each that is wanted, at most


def int8_tile_grid(conv: ConvGeometry) -> TileGrid:
    high, wide = (-(-n // 4) for n in conv.size)
    return TileGrid(4, high, wide, 1 if conv.inputs * conv.outputs * 72 <= _INSIDE else high)


class Int8WinogradConv(Int8Conv):
    """conv2d."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        made = Int8Conv.accept(node, context) if node.op.kind == "conv2d" else None
        if not isinstance(made, Int8Conv) or not suits_winograd(made.conv):
            return None
        conv, lanes, grid = made.conv, context.isa.lanes, int8_tile_grid(made.conv)
        if conv.inputs % (2 * lanes) or conv.outputs % (4 * lanes) or conv.inputs < 64:
            return None
        if int8_winograd.max_abs_output(made.numbers.filters) >= int8_winograd.MAX_ABS_OUTPUT:
            return None
        wasteful = grid.high * grid.wide * 16 > _WASTE * conv.size[0] * conv.size[1]
        usual = not wasteful and conv.inputs * conv.outputs * 72 <= _STREAMED
        spec = ("winograd", conv, made.numbers.ending)
        return (
            cls(node, conv, made.numbers, grid) if context.tuning.pick(node, "way", spec, (usual, not usual)) else None
        )

    def __init__(self, node: Node, conv: ConvGeometry, numbers: Int8ConvParams, grid: TileGrid | None = None) -> None:
        super().__init__(node, conv, numbers)
        self.grid = grid or int8_tile_grid(conv)

    def required_border(self) -> tuple[Value, Border] | None:
        return patch_border(self.node.op.args["input"], self.grid, self.conv.border)

    def prefers_unpadded(self) -> Value | None:
        return None

    def temporaries(self, context: LoweringContext) -> list[int]:
        if self.grid.band == 1:
            return []
        tiles = self.grid.points * self.grid.high * self.grid.wide
        return [tiles * self.conv.inputs * 2, tiles * self.conv.outputs * 4]

    def emit(self, context: LoweringContext) -> None:
        numbers, lanes = self.numbers, context.isa.lanes
        work = Int8WinogradEmitter(context, self)
        size = 72 * self.conv.inputs * self.conv.outputs
        weights = context.weights.reserve(
            size, lambda room: int8_winograd.pack_weights(room, lanes, numbers.filters, work.vectors), numbers.filters
        )
        ends = int8_winograd.pack_epilogue_params(
            lanes, numbers.bias, np.ascontiguousarray(numbers.factors), numbers.notes.pack()
        )
        place = context.weights.add(ends)
        for n in range(self.conv.images):
            work.emit(n, weights, place)


class Int8WinogradEmitter(WinogradEmitter):
    rate = 100.0

    def __init__(self, context: LoweringContext, way: Int8WinogradConv) -> None:
        super().__init__(context, way.node, way.conv, way.grid)
        conv, grid, lanes = self.conv, self.grid, context.isa.lanes
        tiles = grid.band * grid.wide
        data, out, second = self.data.layout, self.out.layout, self.second.layout
        self.patches = PatchRow(4, grid.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 2, 2)
        results = PatchRow(4, grid.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = OutputTiles(results, conv.size[1], second.row, second.pixel)
        self.vectors, largest = (2, 14) if context.isa.registers >= 32 else (2, 4)
        self.points = PointGemm(36, tiles, largest, 2 * conv.inputs, self.patches.point, results.point)
        columns = self.vectors * lanes
        self.panels, self.panel = conv.outputs // columns, 2 * conv.inputs * columns
        self.width, self.size = 4 * columns, 2 * conv.inputs * conv.outputs
        self.key, self.ends = ("bytes", self.vectors, conv.inputs), way.numbers.ending
        self.ending = way.numbers.ending

    def emit_input_transform(self, module: Module) -> Function:
        return emit_input_transform(module, 2 * self.context.isa.lanes, self.patches)

    def emit_output_transform(self, module: Module) -> Function:
        return int8_winograd.emit_output_transform(module, self.context.isa.lanes, self.outputs, self.ending)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        window = Window((), self.conv.inputs // 2, 2 * self.conv.inputs)
        out = 4 * self.conv.outputs
        isa, sizes = self.context.isa, self.points.sizes
        return [{size: int8_winograd.emit_tile(module, isa, size, self.vectors, window, out) for size, _ in sizes}]
