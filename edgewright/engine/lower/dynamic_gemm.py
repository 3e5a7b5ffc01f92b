"""Rows quantized by their own range as they come, and their products with weights of 8 and 4 bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.codegen.epilogue import Epilogue
from edgewright.engine.graph.dynamic_quantization import is_dynamically_quantized
from edgewright.engine.graph.layout import Layout
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels import dynamic_gemm
from edgewright.engine.kernels.quantize_rows import QuantizedRows, emit_quantize_rows
from edgewright.engine.kernels.tile_loops import PanelGroup, PixelStrides, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order
from edgewright.engine.lower.conv_geometry import GemmPart, has_uniform_rows, row_blocks, should_prefetch
from edgewright.engine.plan import Address
from edgewright.ir.graph import Array, Value

_RATE = 150.0  # products per nanosecond, about


def quantized_row_layout(value: Value) -> Layout:
    """How rows that carry their own scale lie."""
    shape = tuple(int(n) for n in value.bound)
    pitch, steps = QuantizedRows(shape[-1]).pitch, [1]
    step = pitch
    for n in reversed(shape[:-1]):
        steps.append(step)
        step *= n
    return Layout(shape, 1, tuple(reversed(steps)), 0, step)


class DynamicQuantize(Lowering):
    """convert to bytes on the fly."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        fits = node.op.kind == "convert" and is_dynamically_quantized(node.out) and is_float32(node.op.args["self"])
        return cls(node) if fits and len(node.ops) == 1 else None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.straight and has_uniform_rows(layout)

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.node.op.args["self"]), context.home(self.node.out)
        lanes, length = context.isa.lanes, out.layout.shape[-1]
        for block in row_blocks(data.layout, out.layout):
            lines = (block.columns, block.row[0]) if block.rows > 1 else ()  # else one kernel for any number of rows
            rows = QuantizedRows(length, block.pixel[0], *lines)

            def build(module: Module, name: str, rows: QuantizedRows = rows) -> None:
                emit_quantize_rows(module, name, lanes, rows)

            name = context.kernel("rows", rows, build)
            slots = [home.at(start) for home, start in zip((data, out), block.start, strict=True)]
            context.step(name, slots, block.rows * block.columns, block.rows * block.columns * length * 0.15)


class DynamicQuantizedGemm(Lowering):
    """linear, and pointwise convolutions, of such rows."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        op = node.op
        self.data, weight = op.args["input"], op.args["weight"]
        filters = np.asarray(weight.data)
        filters = filters.T if op.args.get("transposed") else filters.reshape(filters.shape[0], -1)
        self.columns, self.depth = filters.shape
        self.rows = math.prod(self.data.bound[:-1])
        q = weight.q
        four = (q.qmin, q.qmax) == (-8, 7)
        steps = 2 * -(-self.depth // 8) if four else -(-self.depth // 4)
        short = bool(q.block) and not np.any(
            dynamic_gemm.block_scale_bits(np.asarray(q.scale, np.float32), four) & 0xFFFF
        )
        self.weights = dynamic_gemm.DynamicGemmWeights(four, steps, q.block // 4 if q.block else 0, short)
        self.filters = filters
        self.tail: Epilogue = fused_clamp(op) + node.tail

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        x = node.op.args.get("input")
        if node.op.kind not in ("linear", "conv2d") or x is None or not is_dynamically_quantized(x) or node.before:
            return None
        return cls(node)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.dense or (layout.straight and has_uniform_rows(layout))

    def emit(self, context: LoweringContext) -> None:
        isa, data, out = context.isa, context.home(self.data), context.home(self.node.out)
        second = out if self.node.second is None else context.home(self.node.second)
        homes = (data, out, second)
        made = dynamic_gemm.make_panels(isa, self.columns, self.rows)
        largest = 1 if self.rows == 1 else dynamic_gemm.max_tile_rows(isa, self.weights, made[0].vectors)
        sizes = [self.weights.size(p.vectors * isa.lanes) for p in made]
        packed = self._pack(context, made)
        for block in row_blocks(*(h.layout for h in homes)):
            steps = [PixelStrides(row, pixel) for row, pixel in zip(block.row, block.pixel, strict=True)]
            grid = TileGrid(block.rows, block.columns, largest, *steps)
            by_panel, outside = loop_order(
                GemmPart(grid, 0, 0, 0, 0), len(made), sum(sizes), self.columns, context.threads
            )
            ahead = should_prefetch(grid, sum(sizes), by_panel or outside)
            name = self._kernel(context, grid, made, by_panel, outside, ahead)
            macs = block.rows * block.columns * self.depth * self.columns
            units = len(made) if by_panel else grid.rows * grid.tiles
            starts = [home.at(start) for home, start in zip(homes, block.start, strict=True)]
            slots = [starts[0], packed, *starts[1:]]
            context.step(name, slots, units, macs / _RATE, macs, 1 if outside and not by_panel else 8)

    def _kernel(
        self,
        context: LoweringContext,
        grid: TileGrid,
        made: list[dynamic_gemm.DynamicGemmPanel],
        by_panel: bool,
        outside: bool,
        ahead: bool,
    ) -> str:
        def build(module: Module, name: str) -> None:
            emit_tile_loops(module, name, grid, self.runs(module, context.isa, grid, made, ahead), by_panel, outside)

        spec = (grid, tuple(made), self.weights, QuantizedRows(self.depth), self.tail, by_panel, outside, ahead)
        return context.kernel("rowgemm", spec, build)

    def runs(
        self, module: Module, isa: ISA, grid: TileGrid, made: list[dynamic_gemm.DynamicGemmPanel], ahead: bool = False
    ) -> list[PanelGroup]:
        """The panels of the product, and what makes the function for their tiles."""
        weights, rows, tail = self.weights, QuantizedRows(self.depth), self.tail
        runs, offset, column = [], 0, 0
        for panel in dict.fromkeys(made):
            count, size = made.count(panel), weights.size(panel.vectors * isa.lanes)

            def tile(pixels: int, panel: dynamic_gemm.DynamicGemmPanel = panel) -> Function:
                steps = (grid.out.pixel, grid.second.pixel)
                return dynamic_gemm.emit_tile(
                    module, isa, pixels, panel, weights, rows, *steps, tail, ahead and grid.late(pixels)
                )

            runs.append(PanelGroup(count, size, offset, 4 * column, 4 * panel.used, tile))
            offset, column = offset + count * size, column + count * panel.used
        return runs

    def _pack(self, context: LoweringContext, made: list[dynamic_gemm.DynamicGemmPanel]) -> Address:
        size = sum(self.weights.size(p.vectors * context.isa.lanes) for p in made)
        write, source = self.writer(context.isa, made), np.asarray(self.node.op.args["weight"].data)
        return context.weights.reserve(size, write, source)

    def writer(self, isa: ISA, made: list[dynamic_gemm.DynamicGemmPanel]) -> Callable[[Array], None]:
        """What packs the weights."""
        weights, op = self.weights, self.node.op
        scales = np.asarray(op.args["weight"].q.scale, np.float32).reshape(-1)
        per_block = np.broadcast_to(scales, self.columns) if scales.size == 1 else scales
        bias = op.args.get("bias")
        added = np.zeros(self.columns, np.float32) if bias is None else np.asarray(bias.data, np.float32).reshape(-1)

        def write(room: Array) -> None:
            wide = np.zeros((self.columns, 4 * weights.steps), np.int8)
            wide[:, : self.depth] = self.filters
            dynamic_gemm.pack_weights(room, isa, wide, per_block.reshape(self.columns, -1), added, weights, made)

        return write
