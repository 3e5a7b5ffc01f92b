"""Operators of graphs whose sizes vary: their kernels are given counts and strides, and so do for every size."""

from __future__ import annotations

import math

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import dynamic_gemm, gemm
from edgewright.engine.kernels.dynamic_matmul import (
    MatmulShape,
    emit_dynamic_matmul,
    emit_dynamic_packing,
    max_tile_rows,
)
from edgewright.engine.kernels.dynamic_softmax import emit_dynamic_softmax
from edgewright.engine.kernels.dynamic_tile_loops import DynamicTileGrid, emit_dynamic_tile_loops
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import FloatConv, panel_runs
from edgewright.engine.lower.conv_geometry import has_uniform_rows, input_window
from edgewright.engine.lower.dynamic_gemm import DynamicQuantizedGemm
from edgewright.engine.lower.matmul import MatMul, batch_runs, offset_place
from edgewright.engine.lower.softmax import Softmax
from edgewright.engine.plan import Address, KernelArg
from edgewright.ir.graph import Value

_MANY = 1024  # rows that tiles and panels are chosen for
_LARGE = 128 << 10  # bytes of weights that are walked once
_RATE = 45.0  # products per nanosecond, about


def _between(home: Storage) -> int:
    """Bytes from a row to the next."""
    return home.layout.strides[-2] if len(home.layout.strides) > 1 else 0


class DynamicShapeLinear(FloatConv):
    """linear of any number of rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return super().accept(node, context) if node.op.kind == "linear" else None

    def emit(self, context: LoweringContext) -> None:
        op, conv, isa = self.node.op, self.conv, context.isa
        data, out = context.home(op.args["input"]), context.home(self.node.out)
        second = out if self.node.second is None else context.home(self.node.second)
        if not all(has_uniform_rows(h.layout) for h in (data, out, second)):
            super().emit(context)
            return
        made = gemm.make_panels(isa, conv.outputs, _MANY)
        grid = DynamicTileGrid(
            gemm.max_tile_pixels(isa, max(len(p.widths) for p in made)), *map(_between, (data, out, second))
        )
        reach, tail, size = input_window(conv, data, 4), self.tail, gemm.packed_size(made, conv.inputs)

        def build(module: Module, name: str) -> None:
            fixed = TileGrid(
                1, 1, 1, PixelStrides(0, grid.data), PixelStrides(0, grid.out), PixelStrides(0, grid.second)
            )
            emit_dynamic_tile_loops(module, name, grid, panel_runs(module, fixed, made, reach, tail), size > _LARGE)

        name = context.kernel("open_gemm", (grid, tuple(made), reach, tail, size > _LARGE), build)
        rows, filters = conv.size[1], self.filters.reshape(conv.outputs, -1)
        bias = None if op.args.get("bias") is None else op.args["bias"].data.reshape(-1)
        assert context.shared is not None
        added = op.args.get("bias")
        place = context.shared.pack((op.args["weight"].data, None if added is None else added.data),
                                     ("gemm", tuple(made), self.filters.strides), size,
                                     lambda room: gemm.pack_weights(room, filters, bias, made))  # fmt: skip
        slots: list[KernelArg] = [data.at(), place, out.at(), second.at(), rows]
        macs = rows * conv.inputs * conv.outputs
        context.step(name, slots, grid.tiles(rows), macs / _RATE, macs, 1 if size > _LARGE else 8)


class DynamicShapeQuantizedLinear(DynamicQuantizedGemm):
    """linear of any number of rows that are quantized by their own range."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return super().accept(node, context) if node.op.kind == "linear" else None

    def emit(self, context: LoweringContext) -> None:
        isa, data, out = context.isa, context.home(self.data), context.home(self.node.out)
        second = out if self.node.second is None else context.home(self.node.second)
        if not all(has_uniform_rows(h.layout) for h in (data, out, second)):
            super().emit(context)
            return
        made = dynamic_gemm.make_panels(isa, self.columns, _MANY)
        largest = dynamic_gemm.max_tile_rows(isa, self.weights, made[0].vectors)
        grid = DynamicTileGrid(largest, *map(_between, (data, out, second)))
        size = sum(self.weights.size(p.vectors * isa.lanes) for p in made)

        def build(module: Module, name: str) -> None:
            fixed = TileGrid(
                1, 1, 1, PixelStrides(0, grid.data), PixelStrides(0, grid.out), PixelStrides(0, grid.second)
            )
            emit_dynamic_tile_loops(module, name, grid, self.runs(module, isa, fixed, made), size > _LARGE)

        name = context.kernel("open_rowgemm", (grid, tuple(made), self.weights, self.depth, self.tail), build)
        assert context.shared is not None
        weight, added = self.node.op.args["weight"], self.node.op.args.get("bias")
        owners = (weight.data, None if added is None else added.data)
        how = ("rowgemm", tuple(made), self.weights, weight.q)
        place = context.shared.pack(owners, how, size, self.writer(isa, made))
        macs = self.rows * self.depth * self.columns
        slots: list[KernelArg] = [data.at(), place, out.at(), second.at(), self.rows]
        context.step(name, slots, grid.tiles(self.rows), macs / (3 * _RATE), macs, 1 if size > _LARGE else 8)


class DynamicShapeMatMul(MatMul):
    """bmm of any sizes."""

    def _sizes(self) -> MatmulShape:
        return MatmulShape(self.rows, self.depth, self.columns)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        only_right = value is self.right and value is not self.left and value is not self.node.second
        return only_right or layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [math.prod(self.batch) * self._sizes().packed(context.isa)]

    def emit(self, context: LoweringContext) -> None:
        data, matrix, out = (context.home(v) for v in (self.left, self.right, self.node.out))
        second = out if self.node.second is None else context.home(self.node.second)
        strides = [self._spread(h.layout.shape, h.layout.strides) for h in (data, matrix, out, second)]
        room, done = Address("arena", context.temporaries[0]), 0
        groups = []
        for many, own, moves in batch_runs(self.batch, strides):
            packed = 1 if own[1] == 0 else many
            self._pack_open(context, matrix.at(moves[1]), offset_place(room, done), packed, own[1])
            groups.append((many, own, moves, done))
            done += packed * self._sizes().packed(context.isa)
            context.barrier = False
        context.barrier = True
        for many, own, moves, start in groups:
            between = 0 if own[1] == 0 else self._sizes().packed(context.isa)
            homes = [data.at(moves[0]), offset_place(room, start), out.at(moves[2]), second.at(moves[3])]
            steps = [_between(h) for h in (data, out, second)] + [own[0], own[2], own[3], between]
            self._multiply_open(context, homes, steps, many)
            context.barrier = False

    def _pack_open(self, context: LoweringContext, source: Address, target: Address, many: int, between: int) -> None:
        isa, sizes, layout = context.isa, self._sizes(), context.home(self.right).layout
        step, along = layout.strides[-2:]
        along = 4 if self.columns == 1 else along
        step = 4 if self.depth == 1 and along != 4 else step
        how = "straight" if along == 4 else "turned" if step == 4 else "any"
        name = context.kernel("open_packing", how, lambda module, name: emit_dynamic_packing(module, name, isa, how))
        panels = sizes.panels(isa)
        slots: list[KernelArg] = [
            source,
            target,
            self.depth,
            self.columns,
            step,
            along,
            between,
            sizes.panel(isa),
            panels,
        ]
        context.step(name, slots, many * panels, many * self.depth * self.columns * 0.1)

    def _multiply_open(self, context: LoweringContext, homes: list[Address], steps: list[int], many: int) -> None:
        isa, tail, sizes = context.isa, self.tail, self._sizes()
        name = context.kernel("open_matmul", tail, lambda module, name: emit_dynamic_matmul(module, name, isa, tail))
        tiles = max(1, -(-self.rows // max_tile_rows(isa)))
        numbers = [self.rows, self.depth, self.columns, *steps, sizes.panel(isa), tiles, sizes.panels(isa)]
        macs = many * self.rows * self.depth * self.columns
        context.step(name, [*homes, *numbers], many * tiles, macs / _RATE, macs)


class DynamicShapeSoftmax(Softmax):
    """softmax along a last dimension of any length."""

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.node.op.args["self"]), context.home(self.node.out)
        length, lanes = out.layout.shape[-1], context.isa.lanes
        assert data.layout.dense and out.layout.dense
        name = context.kernel("open_softmax", (), lambda module, name: emit_dynamic_softmax(module, name, lanes))
        rows = math.prod(out.layout.shape[:-1])
        context.step(name, [data.at(), out.at(), length], rows, rows * length * 1.0)


DYNAMIC_SHAPE_LOWERINGS: list[type[Lowering]] = [
    DynamicShapeQuantizedLinear,
    DynamicShapeLinear,
    DynamicShapeMatMul,
    DynamicShapeSoftmax,
]
