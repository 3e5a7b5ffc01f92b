"""Operators of dynamic-shape graphs: kernels take sizes and strides as arguments, so one kernel serves every shape."""

from __future__ import annotations

import math

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import dynamic_gemm, gemm
from edgewright.engine.kernels.matmul import (
    MatmulShape,
    emit_dynamic_matmul,
    emit_dynamic_packing,
    max_tile_rows,
)
from edgewright.engine.kernels.norm_softmax import emit_dynamic_softmax
from edgewright.engine.kernels.tile_loops import (
    DynamicTileGrid,
    PixelStrides,
    TileGrid,
    emit_dynamic_tile_loops,
    emit_tile_loops,
)
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import FloatConv, panel_runs
from edgewright.engine.lower.conv_geometry import has_uniform_rows, input_window
from edgewright.engine.lower.dynamic_gemm import DynamicQuantizedGemm
from edgewright.engine.lower.matmul import MatMul, batch_runs, offset_address
from edgewright.engine.lower.norm_softmax import Softmax
from edgewright.engine.plan import Address, KernelArg
from edgewright.ir.graph import Value

_TYPICAL_ROWS = 1024  # rows that tiles and panels are chosen for
_LARGE = 128 << 10  # bytes of weights from which panels become the outer loop
_RATE = 45.0  # approximate multiply-adds per nanosecond on one core
# Bytes ahead of which a matrix-vector product prefetches weights. Hardware prefetchers start anew in every page and at
# every matrix; the weights of the next step follow in memory, so prefetching beyond the end starts reading them early.
_GEMV_AHEAD = 8 << 10
_GEMV_RATE = 30.0  # of quantized weights, from memory


def _row_stride(storage: Storage) -> int:
    """Bytes from one row to the next."""
    return storage.layout.strides[-2] if len(storage.layout.strides) > 1 else 0


class DynamicShapeLinear(FloatConv):
    """linear with a dynamic number of rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return super().accept(node, context) if node.op.kind == "core.linear" else None

    def emit(self, context: LoweringContext) -> None:
        op, conv, isa = self.node.op, self.conv, context.isa
        data, out = context.storage(op.args["input"]), context.storage(self.node.out)
        second = out if self.node.residual is None else context.storage(self.node.residual)
        if not all(has_uniform_rows(h.layout) for h in (data, out, second)):
            super().emit(context)
            return
        panels = gemm.make_panels(isa, conv.outputs, _TYPICAL_ROWS)
        grid = DynamicTileGrid(
            gemm.max_tile_pixels(isa, max(len(p.widths) for p in panels)), *map(_row_stride, (data, out, second))
        )
        window, epilogue, weight_bytes = (
            input_window(conv, data, 4),
            self.epilogue,
            gemm.packed_size(panels, conv.inputs),
        )

        def build(module: Module, name: str) -> None:
            row_grid = TileGrid(
                1, 1, 1, PixelStrides(0, grid.data), PixelStrides(0, grid.out), PixelStrides(0, grid.residual)
            )
            emit_dynamic_tile_loops(
                module, name, grid, panel_runs(module, row_grid, panels, window, epilogue), weight_bytes > _LARGE
            )

        name = context.kernel("dynamic_gemm", (grid, tuple(panels), window, epilogue, weight_bytes > _LARGE), build)
        rows, filters = conv.size[1], self.filters.reshape(conv.outputs, -1)
        bias = None if op.args.get("bias") is None else op.args["bias"].data.reshape(-1)
        assert context.shared is not None
        bias_value = op.args.get("bias")
        weights_address = context.shared.pack((op.args["weight"].data, None if bias_value is None else bias_value.data),
                                     ("gemm", tuple(panels), self.filters.strides), weight_bytes,
                                     lambda buffer: gemm.pack_weights(buffer, filters, bias, panels))  # fmt: skip
        slots: list[KernelArg] = [data.at(), weights_address, out.at(), second.at(), rows]
        macs = rows * conv.inputs * conv.outputs
        context.step(name, slots, grid.tiles(rows), macs / _RATE, macs, 1 if weight_bytes > _LARGE else 8)


class DynamicShapeQuantizedLinear(DynamicQuantizedGemm):
    """linear with a dynamic number of dynamically quantized rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return super().accept(node, context) if node.op.kind == "core.linear" else None

    def emit(self, context: LoweringContext) -> None:
        isa, data, out = context.isa, context.storage(self.data), context.storage(self.node.out)
        second = out if self.node.residual is None else context.storage(self.node.residual)
        if not all(has_uniform_rows(h.layout) for h in (data, out, second)):
            super().emit(context)
            return
        panels = dynamic_gemm.make_panels(isa, self.columns, _TYPICAL_ROWS, bool(self.weights.block))
        weights_address = self._pack_shared(context, panels)
        if self.rows == 1:
            self._emit_single_row(context, panels, [data.at(), weights_address, out.at(), second.at()])
            return
        largest = dynamic_gemm.max_tile_rows(isa, self.weights, panels[0].vectors)
        grid = DynamicTileGrid(largest, *map(_row_stride, (data, out, second)))
        weight_bytes = sum(self.weights.size(p.vectors * isa.lanes) for p in panels)

        def build(module: Module, name: str) -> None:
            row_grid = TileGrid(
                1, 1, 1, PixelStrides(0, grid.data), PixelStrides(0, grid.out), PixelStrides(0, grid.residual)
            )
            emit_dynamic_tile_loops(module, name, grid, self.runs(module, isa, row_grid, panels), weight_bytes > _LARGE)

        name = context.kernel(
            "dynamic_quantized_gemm", (grid, tuple(panels), self.weights, self.depth, self.epilogue), build
        )
        macs = self.rows * self.depth * self.columns
        slots: list[KernelArg] = [data.at(), weights_address, out.at(), second.at(), self.rows]
        context.step(name, slots, grid.tiles(self.rows), macs / (3 * _RATE), macs, 1 if weight_bytes > _LARGE else 8)

    def _pack_shared(self, context: LoweringContext, panels: list[dynamic_gemm.DynamicGemmPanel]) -> Address:
        """The weights, packed for any number of rows."""
        assert context.shared is not None
        weight, bias = self.node.op.args["weight"], self.node.op.args.get("bias")
        owners = (weight.data, None if bias is None else bias.data)
        packing = ("rowgemm", tuple(panels), self.weights, weight.q)
        size = sum(self.weights.size(p.vectors * context.isa.lanes) for p in panels)
        return context.shared.pack(owners, packing, size, self.writer(context.isa, panels))

    def _emit_single_row(
        self, context: LoweringContext, panels: list[dynamic_gemm.DynamicGemmPanel], slots: list[Address]
    ) -> None:
        """A matrix-vector product: work units are panels. They are read one after the other, from one end of the
        weights to the other, which memory serves fastest."""
        isa = context.isa
        grid = TileGrid(1, 1, 1, PixelStrides(0, 0), PixelStrides(0, 0), PixelStrides(0, 0))

        def build(module: Module, name: str) -> None:
            runs = self.runs(module, isa, grid, panels, ahead=_GEMV_AHEAD)
            emit_tile_loops(module, name, grid, runs, True, False)

        spec = (tuple(panels), self.weights, self.depth, self.epilogue, _GEMV_AHEAD)
        name = context.kernel("dynamic_quantized_gemv", spec, build)
        macs = self.depth * self.columns
        context.step(name, slots, len(panels), macs / _GEMV_RATE, macs)


class DynamicShapeMatMul(MatMul):
    """bmm with dynamic shapes."""

    def _sizes(self) -> MatmulShape:
        return MatmulShape(self.rows, self.depth, self.columns)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        only_right = value is self.right and value is not self.left and value is not self.node.residual
        return only_right or layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [math.prod(self.batch) * self._sizes().packed(context.isa)]

    def emit(self, context: LoweringContext) -> None:
        data, matrix, out = (context.storage(v) for v in (self.left, self.right, self.node.out))
        second = out if self.node.residual is None else context.storage(self.node.residual)
        strides = [self._batch_strides(h.layout.shape, h.layout.strides) for h in (data, matrix, out, second)]
        packed, used = Address("arena", context.temporaries[0]), 0
        groups = []
        for count, between, offsets in batch_runs(self.batch, strides):
            matrices = 1 if between[1] == 0 else count
            self._emit_dynamic_packing(
                context, matrix.at(offsets[1]), offset_address(packed, used), matrices, between[1]
            )
            groups.append((count, between, offsets, used))
            used += matrices * self._sizes().packed(context.isa)
            context.barrier = False
        context.barrier = True
        for count, between, offsets, start in groups:
            packed_stride = 0 if between[1] == 0 else self._sizes().packed(context.isa)
            storages = [data.at(offsets[0]), offset_address(packed, start), out.at(offsets[2]), second.at(offsets[3])]
            steps = [_row_stride(h) for h in (data, out, second)] + [between[0], between[2], between[3], packed_stride]
            self._emit_dynamic_gemm(context, storages, steps, count)
            context.barrier = False

    def _emit_dynamic_packing(
        self, context: LoweringContext, source: Address, target: Address, count: int, stride: int
    ) -> None:
        isa, sizes, layout = context.isa, self._sizes(), context.storage(self.right).layout
        step, column_step = layout.strides[-2:]
        column_step = 4 if self.columns == 1 else column_step
        step = 4 if self.depth == 1 and column_step != 4 else step
        access = "rows" if column_step == 4 else "columns" if step == 4 else "neither"
        name = context.kernel(
            "dynamic_packing", access, lambda module, name: emit_dynamic_packing(module, name, isa, access)
        )
        panels = sizes.panels(isa)
        slots: list[KernelArg] = [
            source,
            target,
            self.depth,
            self.columns,
            step,
            column_step,
            stride,
            sizes.panel(isa),
            panels,
        ]
        context.step(name, slots, count * panels, count * self.depth * self.columns * 0.1)

    def _emit_dynamic_gemm(
        self, context: LoweringContext, operands: list[Address], steps: list[int], count: int
    ) -> None:
        isa, epilogue, sizes = context.isa, self.epilogue, self._sizes()
        name = context.kernel(
            "dynamic_matmul", epilogue, lambda module, name: emit_dynamic_matmul(module, name, isa, epilogue)
        )
        tiles = max(1, -(-self.rows // max_tile_rows(isa)))
        sizes_and_strides = [self.rows, self.depth, self.columns, *steps, sizes.panel(isa), tiles, sizes.panels(isa)]
        macs = count * self.rows * self.depth * self.columns
        context.step(name, [*operands, *sizes_and_strides], count * tiles, macs / _RATE, macs)


class DynamicShapeSoftmax(Softmax):
    """softmax with a dynamic last dimension."""

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.node.op.args["self"]), context.storage(self.node.out)
        length, lanes = out.layout.shape[-1], context.isa.lanes
        assert data.layout.dense and out.layout.dense
        name = context.kernel("dynamic_softmax", (), lambda module, name: emit_dynamic_softmax(module, name, lanes))
        rows = math.prod(out.layout.shape[:-1])
        context.step(name, [data.at(), out.at(), length], rows, rows * length * 1.0)


DYNAMIC_SHAPE_LOWERINGS: list[type[Lowering]] = [
    DynamicShapeQuantizedLinear,
    DynamicShapeLinear,
    DynamicShapeMatMul,
    DynamicShapeSoftmax,
]
