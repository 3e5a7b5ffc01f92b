"""Dynamically quantized activations (one scale per row), and their GEMMs with int8 and int4 weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Function, Module
from edgewright.engine.codegen.epilogue import Epilogue
from edgewright.engine.graph.fuse import is_dynamically_quantized
from edgewright.engine.graph.layout import Layout
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32
from edgewright.engine.isa import ISA
from edgewright.engine.kernels import dynamic_gemm
from edgewright.engine.kernels.dynamic_gemm import QuantizedRows, emit_quantize_rows
from edgewright.engine.kernels.tile_loops import PanelGroup, PixelStrides, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order
from edgewright.engine.lower.conv_geometry import GemmPart, has_uniform_rows, row_blocks, should_prefetch
from edgewright.engine.plan import Address
from edgewright.ir.graph import Array, Value

_RATE = 150.0  # approximate multiply-adds per nanosecond on one core


def quantized_row_layout(value: Value) -> Layout:
    """Layout of dynamically quantized rows: each row is followed by its scale and zero point."""
    shape = tuple(int(n) for n in value.bound)
    pitch, strides = QuantizedRows(shape[-1]).pitch, [1]
    step = pitch
    for n in reversed(shape[:-1]):
        strides.append(step)
        step *= n
    return Layout(shape, 1, tuple(reversed(strides)), 0, step)


class DynamicQuantize(Lowering):
    """convert to int8 with one scale per row, computed at run time."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        supported = (
            node.op.kind == "core.convert" and is_dynamically_quantized(node.out) and is_float32(node.op.args["self"])
        )
        return cls(node) if supported and len(node.ops) == 1 else None

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.straight and has_uniform_rows(layout)

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.node.op.args["self"]), context.storage(self.node.out)
        lanes, length = context.isa.lanes, out.layout.shape[-1]
        for block in row_blocks(data.layout, out.layout):
            outer = (
                (block.columns, block.row[0]) if block.rows > 1 else ()
            )  # otherwise one kernel serves any number of rows
            rows = QuantizedRows(length, block.pixel[0], *outer)

            def build(module: Module, name: str, rows: QuantizedRows = rows) -> None:
                emit_quantize_rows(module, name, lanes, rows)

            name = context.kernel("quantize_rows", rows, build)
            slots = [storage.at(start) for storage, start in zip((data, out), block.start, strict=True)]
            context.step(name, slots, block.rows * block.columns, block.rows * block.columns * length * 0.15)


class DynamicQuantizedGemm(Lowering):
    """linear and pointwise conv2d of dynamically quantized rows."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        op = node.op
        self.data, weight = op.args["input"], op.args["weight"]
        filters = np.asarray(weight.data)
        filters = filters.T if op.args.get("transposed") else filters.reshape(filters.shape[0], -1)
        self.columns, self.depth = filters.shape
        self.rows = math.prod(self.data.bound[:-1])
        q = weight.q
        int4 = (q.qmin, q.qmax) == (-8, 7)
        steps = 2 * -(-self.depth // 8) if int4 else -(-self.depth // 4)
        bf16_scales = bool(q.block) and not np.any(
            dynamic_gemm.block_scale_bits(np.asarray(q.scale, np.float32), int4) & 0xFFFF
        )
        self.weights = dynamic_gemm.DynamicGemmWeights(int4, steps, q.block // 4 if q.block else 0, bf16_scales)
        self.filters = filters
        self.epilogue: Epilogue = fused_clamp(op) + node.epilogue

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        x = node.op.args.get("input")
        if (
            node.op.kind not in ("core.linear", "core.conv2d")
            or x is None
            or not is_dynamically_quantized(x)
            or node.quantizes_input
        ):
            return None
        return cls(node)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return layout.dense or (layout.straight and has_uniform_rows(layout))

    def emit(self, context: LoweringContext) -> None:
        isa, data, out = context.isa, context.storage(self.data), context.storage(self.node.out)
        second = out if self.node.residual is None else context.storage(self.node.residual)
        storages = (data, out, second)
        panels = dynamic_gemm.make_panels(isa, self.columns, self.rows, bool(self.weights.block))
        largest = 1 if self.rows == 1 else dynamic_gemm.max_tile_rows(isa, self.weights, panels[0].vectors)
        sizes = [self.weights.size(p.vectors * isa.lanes) for p in panels]
        packed = self._pack(context, panels)
        for block in row_blocks(*(h.layout for h in storages)):
            steps = [PixelStrides(row, pixel) for row, pixel in zip(block.row, block.pixel, strict=True)]
            grid = TileGrid(block.rows, block.columns, largest, *steps)
            by_panel, panels_outer = loop_order(
                GemmPart(grid, 0, 0, 0, 0), len(panels), sum(sizes), self.columns, context.threads
            )
            prefetch = should_prefetch(grid, sum(sizes), by_panel or panels_outer)
            name = self._kernel(context, grid, panels, by_panel, panels_outer, prefetch)
            macs = block.rows * block.columns * self.depth * self.columns
            units = len(panels) if by_panel else grid.rows * grid.tiles
            starts = [storage.at(start) for storage, start in zip(storages, block.start, strict=True)]
            slots = [starts[0], packed, *starts[1:]]
            context.step(name, slots, units, macs / _RATE, macs, 1 if panels_outer and not by_panel else 8)

    def _kernel(
        self,
        context: LoweringContext,
        grid: TileGrid,
        panels: list[dynamic_gemm.DynamicGemmPanel],
        by_panel: bool,
        panels_outer: bool,
        prefetch: bool,
    ) -> str:
        def build(module: Module, name: str) -> None:
            emit_tile_loops(
                module, name, grid, self.runs(module, context.isa, grid, panels, prefetch), by_panel, panels_outer
            )

        spec = (
            grid,
            tuple(panels),
            self.weights,
            QuantizedRows(self.depth),
            self.epilogue,
            by_panel,
            panels_outer,
            prefetch,
        )
        return context.kernel("quantized_gemm", spec, build)

    def runs(
        self,
        module: Module,
        isa: ISA,
        grid: TileGrid,
        panels: list[dynamic_gemm.DynamicGemmPanel],
        prefetch: bool = False,
        ahead: int = 0,
    ) -> list[PanelGroup]:
        """Group equal panels into runs, each with the emitter of its tile function. ``prefetch``: the next panel, in
        the last rows; ``ahead``: this many bytes ahead, in all."""
        weights, rows, epilogue = self.weights, QuantizedRows(self.depth), self.epilogue
        runs, offset, column = [], 0, 0
        for panel in dict.fromkeys(panels):
            count, size = panels.count(panel), weights.size(panel.vectors * isa.lanes)

            def tile(pixels: int, panel: dynamic_gemm.DynamicGemmPanel = panel, size: int = size) -> Function:
                steps, distance = (grid.out.pixel, grid.residual.pixel), ahead
                if prefetch and grid.late(pixels):
                    distance = size
                return dynamic_gemm.emit_tile(module, isa, pixels, panel, weights, rows, *steps, epilogue, distance)

            runs.append(PanelGroup(count, size, offset, 4 * column, 4 * panel.used, tile))
            offset, column = offset + count * size, column + count * panel.used
        return runs

    def _pack(self, context: LoweringContext, panels: list[dynamic_gemm.DynamicGemmPanel]) -> Address:
        size = sum(self.weights.size(p.vectors * context.isa.lanes) for p in panels)
        write, source = self.writer(context.isa, panels), np.asarray(self.node.op.args["weight"].data)
        return context.weights.reserve(size, write, source)

    def writer(self, isa: ISA, panels: list[dynamic_gemm.DynamicGemmPanel]) -> Callable[[Array], None]:
        """Return the function that packs the weights into a buffer."""
        weights, op = self.weights, self.node.op
        scales = np.asarray(op.args["weight"].q.scale, np.float32).reshape(-1)
        per_block = np.broadcast_to(scales, self.columns) if scales.size == 1 else scales
        bias = op.args.get("bias")
        bias_data = (
            np.zeros(self.columns, np.float32) if bias is None else np.asarray(bias.data, np.float32).reshape(-1)
        )

        def write(buffer: Array) -> None:
            padded = np.zeros((self.columns, 4 * weights.steps), np.int8)
            padded[:, : self.depth] = self.filters
            dynamic_gemm.pack_weights(
                buffer, isa, padded, per_block.reshape(self.columns, -1), bias_data, weights, panels
            )

        return write
