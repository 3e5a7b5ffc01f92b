"""Int8 3x3 convolutions of stride 1 by Winograd F(4x4, 3x3), bit-exact with the direct algorithm.

The transforms are scaled to integers and the accumulators wrap modulo 2**32; ``kernels/int8_winograd.py`` explains why
the result is still exact. ``Int8WinogradConv.accept`` decides when it pays.
"""

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
from edgewright.engine.lower.winograd import WinogradEmitter, WinogradGrid, patch_border, suits_winograd
from edgewright.ir.graph import Value

_L2_WEIGHTS = 640 << 10  # bytes of weights that stay in L2 while tile rows stream through
_MAX_WEIGHTS = 8 << 20  # bytes of weights from which fetching costs more than the saved multiplications
_MAX_WASTE = 1.4  # computed outputs per used output, at most


def int8_tile_grid(conv: ConvGeometry) -> WinogradGrid:
    """Tiles of 4x4 outputs; a band is one tile row if the transformed weights (36 points of int16) fit in L2."""
    high, wide = (-(-n // 4) for n in conv.size)
    return WinogradGrid(4, high, wide, 1 if conv.inputs * conv.outputs * 72 <= _L2_WEIGHTS else high)


class Int8WinogradConv(Int8Conv):
    """conv2d with a 3x3 window, by default unless edge tiles waste too much work or the weights are too large."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        direct = Int8Conv.accept(node, context) if node.op.kind == "core.conv2d" else None
        if not isinstance(direct, Int8Conv) or not suits_winograd(direct.conv):
            return None
        conv, lanes, grid = direct.conv, context.isa.lanes, int8_tile_grid(direct.conv)
        if conv.inputs % (2 * lanes) or conv.outputs % (4 * lanes) or conv.inputs < 64:
            return None
        if int8_winograd.max_abs_output(direct.params.filters) >= int8_winograd.MAX_ABS_OUTPUT:
            return None
        wasteful = grid.high * grid.wide * 16 > _MAX_WASTE * conv.size[0] * conv.size[1]
        by_default = not wasteful and conv.inputs * conv.outputs * 72 <= _MAX_WEIGHTS
        spec = ("winograd", conv, direct.params.requant)
        return (
            cls(node, conv, direct.params, grid)
            if context.tuning.pick(node, "algorithm", spec, (by_default, not by_default))
            else None
        )

    def __init__(
        self, node: Node, conv: ConvGeometry, params: Int8ConvParams, grid: WinogradGrid | None = None
    ) -> None:
        super().__init__(node, conv, params)
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
        params, lanes = self.params, context.isa.lanes
        emitter = Int8WinogradEmitter(context, self)
        weight_bytes = 72 * self.conv.inputs * self.conv.outputs
        weights = context.weights.reserve(
            weight_bytes,
            lambda room: int8_winograd.pack_weights(room, lanes, params.filters, emitter.vectors),
            params.filters,
        )
        epilogue = int8_winograd.pack_epilogue_params(
            lanes, params.bias, np.ascontiguousarray(params.factors), params.epilogue_params.pack()
        )
        epilogue_place = context.weights.add(epilogue)
        for n in range(self.conv.images):
            emitter.emit(n, weights, epilogue_place)


class Int8WinogradEmitter(WinogradEmitter):
    """Emits the steps of one image with int16 points and int32 accumulators."""

    rate = 100.0

    def __init__(self, context: LoweringContext, lowering: Int8WinogradConv) -> None:
        super().__init__(context, lowering.node, lowering.conv, lowering.grid)
        conv, grid, lanes = self.conv, self.grid, context.isa.lanes
        tiles = grid.band * grid.wide
        data, out, second = self.data.layout, self.out.layout, self.residual.layout
        self.patches = PatchRow(4, grid.wide, conv.inputs, data.row, data.pixel, tiles * conv.inputs * 2, 2)
        results = PatchRow(4, grid.wide, conv.outputs, out.row, out.pixel, tiles * conv.outputs * 4)
        self.outputs = OutputTiles(results, conv.size[1], second.row, second.pixel)
        self.vectors, largest = (2, 14) if context.isa.registers >= 32 else (2, 4)
        self.points = PointGemm(36, tiles, largest, 2 * conv.inputs, self.patches.point, results.point)
        columns = self.vectors * lanes
        self.panels, self.panel = conv.outputs // columns, 2 * conv.inputs * columns
        self.width, self.size = 4 * columns, 2 * conv.inputs * conv.outputs
        self.key, self.output_key = ("bytes", self.vectors, conv.inputs), lowering.params.requant
        self.requant = lowering.params.requant

    def emit_input_transform(self, module: Module) -> Function:
        return emit_input_transform(module, 2 * self.context.isa.lanes, self.patches)

    def emit_output_transform(self, module: Module) -> Function:
        return int8_winograd.emit_output_transform(module, self.context.isa.lanes, self.outputs, self.requant)

    def tiles(self, module: Module) -> list[dict[int, Function]]:
        window = Window((), self.conv.inputs // 2, 2 * self.conv.inputs)
        out = 4 * self.conv.outputs
        isa, sizes = self.context.isa, self.points.sizes
        return [{size: int8_winograd.emit_tile(module, isa, size, self.vectors, window, out) for size, _ in sizes}]
