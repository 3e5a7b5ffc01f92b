"""Products of two tensors that the graph makes, in single precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.codegen.epilogue import Epilogue
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node, fused_clamp, is_float32
from edgewright.engine.kernels import gemm
from edgewright.engine.kernels.pack_operand import PackSpec, emit_pack_operand, merge_batch_dims
from edgewright.engine.kernels.skinny_gemm import SkinnyGemmSpec, emit_skinny_gemm, units
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order, panel_runs
from edgewright.engine.lower.conv_geometry import GemmPart
from edgewright.engine.plan import Address, KernelArg
from edgewright.ir.graph import Value

_RATE = 50.0  # products per nanosecond, about
_THIN = 4  # rows: with so few, the matrix is read as it lies


class MatMul(Lowering):
    """bmm: the last two dimensions are matrices, those before are a batch and may be broadcast."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.tail: Epilogue = fused_clamp(node.op) + node.tail
        self.left, self.right = node.op.args["self"], node.op.args["other"]
        *batch, self.rows, self.columns = (int(n) for n in node.middle.bound)
        self.batch, self.depth = tuple(batch), int(self.left.bound[-1])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "bmm" or not all(is_float32(v) for v in (op.args["self"], op.args["other"], node.out)):
            return None
        made = cls(node)
        return made if math.prod(made.batch[:-1]) <= 1024 else None

    def _panels(self, context: LoweringContext) -> list[gemm.Panel]:
        return gemm.make_panels(context.isa, self.columns, max(self.rows, 2))

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Packing takes any second operand; few rows want its rows or its columns side by side."""
        if value is self.right and value is not self.left and value is not self.node.second:
            return self.rows > _THIN or layout.straight or 4 in layout.strides[-2:] or self.depth == 1
        return layout.straight

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        if self.rows <= _THIN:
            return []
        matrices = math.prod(self.right.bound[:-2])
        return [matrices * gemm.packed_size(self._panels(context), self.depth)]

    def emit(self, context: LoweringContext) -> None:
        data, matrix, out = (context.home(v) for v in (self.left, self.right, self.node.out))
        second = out if self.node.second is None else context.home(self.node.second)
        if self.rows <= _THIN:
            self._thin(context, [data, matrix, out, second])
            return
        made = self._panels(context)
        place = Address("arena", context.temporaries[0])
        packing = self._packing(matrix, made)
        self._pack(context, packing, matrix, place)
        packed = np.cumprod([1, *packing.batch[::-1]])[::-1][1:] * packing.matrix  # from one matrix to the next
        strides = [self._spread(h.layout.shape, h.layout.strides) for h in (data, out, second)]
        strides.insert(1, self._spread(matrix.layout.shape, [int(s) for s in packed]))
        context.barrier = True
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in made))
        for many, own, moves in batch_runs(self.batch, strides):
            steps = [PixelStrides(own[i], h.layout.strides[-2]) for i, h in ((0, data), (2, out), (3, second))]
            grid = TileGrid(many, self.rows, largest, *steps, weights=own[1])
            slots = [data.at(moves[0]), offset_place(place, moves[1]), out.at(moves[2]), second.at(moves[3])]
            self._multiply(context, grid, made, slots)

    def _spread(self, shape: Sequence[int], strides: Sequence[int]) -> list[int]:
        """Bytes from one matrix to the next in each dimension of the batch; 0 where it is repeated."""
        own = [0 if n == 1 else s for n, s in zip(shape[:-2], strides, strict=False)]
        return [0] * (len(self.batch) - len(own)) + own

    def _packing(self, matrix: Storage, made: list[gemm.Panel]) -> PackSpec:
        shape, strides = matrix.layout.shape, matrix.layout.strides
        return PackSpec(shape[:-2], strides[:-2], self.depth, strides[-2], strides[-1], tuple(made))

    def _pack(self, context: LoweringContext, packing: PackSpec, matrix: Storage, place: Address) -> None:
        name = context.kernel(
            "packing", packing, lambda module, name: emit_pack_operand(module, name, context.isa, packing)
        )
        matrices = math.prod(packing.batch)
        nanoseconds = matrices * packing.matrix * (0.03 if packing.along == 4 else 0.08)
        context.step(name, [matrix.at(), place], matrices * len(packing.panels), nanoseconds)

    def _multiply(
        self, context: LoweringContext, grid: TileGrid, made: list[gemm.Panel], slots: Sequence[KernelArg]
    ) -> None:
        reach, tail = gemm.Window((), self.depth, grid.data.pixel), self.tail
        size = gemm.packed_size(made, self.depth)
        by_panel = outside = False
        if grid.rows == 1:
            by_panel, outside = loop_order(GemmPart(grid, 0, 0, 0, 0), len(made), size, self.columns, context.threads)

        def build(module: Module, name: str) -> None:
            emit_tile_loops(module, name, grid, panel_runs(module, grid, made, reach, tail), by_panel, outside)

        name = context.kernel("matmul", (grid, tuple(made), reach, tail, by_panel, outside), build)
        macs = grid.rows * grid.columns * self.depth * self.columns
        units = len(made) if by_panel else grid.rows * grid.tiles
        context.step(name, slots, units, macs / _RATE, macs, 1 if outside and not by_panel else 8)

    def _thin(self, context: LoweringContext, homes: list[Storage]) -> None:
        data, matrix, out, second = homes
        strides = [self._spread(h.layout.shape, h.layout.strides) for h in homes]
        batch, steps = merge_batch_dims(self.batch, strides)
        step, along = matrix.layout.strides[-2:]
        along = 4 if self.columns == 1 else along
        between = (data.layout.strides[-2], out.layout.strides[-2], second.layout.strides[-2])
        own = tuple(tuple(s) for s in steps)
        thin = SkinnyGemmSpec(self.rows, self.depth, self.columns, step, along, *between, tuple(batch), own, self.tail)
        lanes = context.isa.lanes
        name = context.kernel("thin", thin, lambda module, name: emit_skinny_gemm(module, name, lanes, thin))
        many, macs = math.prod(batch), math.prod(batch) * self.rows * self.depth * self.columns
        context.step(name, [h.at() for h in homes], many * units(lanes, thin), macs / self.rows * 0.2, macs)


def batch_runs(batch: Sequence[int], strides: list[list[int]]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Runs of products at equal distances: how many, the bytes between them, and where each operand starts."""
    sizes, steps = merge_batch_dims(batch, strides)
    for index in product(*(range(n) for n in sizes[:-1])):
        yield sizes[-1], [s[-1] for s in steps], [sum(i * n for i, n in zip(index, s, strict=False)) for s in steps]


def offset_place(place: Address, offset: int) -> Address:
    return Address(place.buffer, place.offset + offset, place.index)
