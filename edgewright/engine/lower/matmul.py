"""Float32 matrix products of two computed tensors.

The right operand is packed into panels at run time, like constant weights, unless the left one has few rows: then
packing would cost as much as the product, and a skinny kernel reads the matrix in place.
"""

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
from edgewright.engine.kernels.matmul import (
    PackSpec,
    SkinnyGemmSpec,
    emit_pack_operand,
    emit_skinny_gemm,
    merge_batch_dims,
    units,
)
from edgewright.engine.kernels.tile_loops import PixelStrides, TileGrid, emit_tile_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.conv import loop_order, panel_runs
from edgewright.engine.lower.conv_geometry import GemmPart
from edgewright.engine.plan import Address, KernelArg
from edgewright.ir.graph import Value

_RATE = 50.0  # approximate multiply-adds per nanosecond on one core
_SKINNY_ROWS = 4  # rows up to which the right operand is read without packing


class MatMul(Lowering):
    """bmm: the last two dimensions are matrices; the batch dimensions before may broadcast."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.epilogue: Epilogue = fused_clamp(node.op) + node.epilogue
        self.left, self.right = node.op.args["self"], node.op.args["other"]
        *batch, self.rows, self.columns = (int(n) for n in node.middle.bound)
        self.batch, self.depth = tuple(batch), int(self.left.bound[-1])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if op.kind != "core.bmm" or not all(is_float32(v) for v in (op.args["self"], op.args["other"], node.out)):
            return None
        lowering = cls(node)
        return lowering if math.prod(lowering.batch[:-1]) <= 1024 else None

    def _panels(self, context: LoweringContext) -> list[gemm.Panel]:
        return gemm.make_panels(context.isa, self.columns, max(self.rows, 2))

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Packing reads any right operand; the skinny kernel needs contiguous rows or columns."""
        if value is self.right and value is not self.left and value is not self.node.residual:
            return self.rows > _SKINNY_ROWS or layout.straight or 4 in layout.strides[-2:] or self.depth == 1
        return layout.straight

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        if self.rows <= _SKINNY_ROWS:
            return []
        matrices = math.prod(self.right.bound[:-2])
        return [matrices * gemm.packed_size(self._panels(context), self.depth)]

    def emit(self, context: LoweringContext) -> None:
        data, matrix, out = (context.storage(v) for v in (self.left, self.right, self.node.out))
        second = out if self.node.residual is None else context.storage(self.node.residual)
        if self.rows <= _SKINNY_ROWS:
            self._emit_skinny(context, [data, matrix, out, second])
            return
        panels = self._panels(context)
        packed = Address("arena", context.temporaries[0])
        packing = self._packing(matrix, panels)
        self._emit_packing(context, packing, matrix, packed)
        packed_strides = np.cumprod([1, *packing.batch[::-1]])[::-1][1:] * packing.matrix  # from one matrix to the next
        strides = [self._batch_strides(h.layout.shape, h.layout.strides) for h in (data, out, second)]
        strides.insert(1, self._batch_strides(matrix.layout.shape, [int(s) for s in packed_strides]))
        context.barrier = True
        largest = gemm.max_tile_pixels(context.isa, max(len(p.widths) for p in panels))
        for count, between, offsets in batch_runs(self.batch, strides):
            steps = [PixelStrides(between[i], h.layout.strides[-2]) for i, h in ((0, data), (2, out), (3, second))]
            grid = TileGrid(count, self.rows, largest, *steps, weights=between[1])
            slots = [data.at(offsets[0]), offset_address(packed, offsets[1]), out.at(offsets[2]), second.at(offsets[3])]
            self._emit_gemm(context, grid, panels, slots)

    def _batch_strides(self, shape: Sequence[int], strides: Sequence[int]) -> list[int]:
        """Bytes from one matrix to the next in each batch dimension; 0 where it is broadcast."""
        steps = [0 if n == 1 else s for n, s in zip(shape[:-2], strides, strict=False)]
        return [0] * (len(self.batch) - len(steps)) + steps

    def _packing(self, matrix: Storage, panels: list[gemm.Panel]) -> PackSpec:
        shape, strides = matrix.layout.shape, matrix.layout.strides
        return PackSpec(shape[:-2], strides[:-2], self.depth, strides[-2], strides[-1], tuple(panels))

    def _emit_packing(self, context: LoweringContext, packing: PackSpec, matrix: Storage, packed: Address) -> None:
        name = context.kernel(
            "packing", packing, lambda module, name: emit_pack_operand(module, name, context.isa, packing)
        )
        matrices = math.prod(packing.batch)
        nanoseconds = matrices * packing.matrix * (0.03 if packing.col_stride == 4 else 0.08)
        context.step(name, [matrix.at(), packed], matrices * len(packing.panels), nanoseconds)

    def _emit_gemm(
        self, context: LoweringContext, grid: TileGrid, panels: list[gemm.Panel], slots: Sequence[KernelArg]
    ) -> None:
        window, epilogue = gemm.Window((), self.depth, grid.data.pixel), self.epilogue
        weight_bytes = gemm.packed_size(panels, self.depth)
        by_panel = panels_outer = False
        if grid.rows == 1:
            by_panel, panels_outer = loop_order(
                GemmPart(grid, 0, 0, 0, 0), len(panels), weight_bytes, self.columns, context.threads
            )

        def build(module: Module, name: str) -> None:
            emit_tile_loops(
                module, name, grid, panel_runs(module, grid, panels, window, epilogue), by_panel, panels_outer
            )

        name = context.kernel("matmul", (grid, tuple(panels), window, epilogue, by_panel, panels_outer), build)
        macs = grid.rows * grid.columns * self.depth * self.columns
        units = len(panels) if by_panel else grid.rows * grid.tiles
        context.step(name, slots, units, macs / _RATE, macs, 1 if panels_outer and not by_panel else 8)

    def _emit_skinny(self, context: LoweringContext, storages: list[Storage]) -> None:
        data, matrix, out, second = storages
        strides = [self._batch_strides(h.layout.shape, h.layout.strides) for h in storages]
        batch, steps = merge_batch_dims(self.batch, strides)
        step, col_stride = matrix.layout.strides[-2:]
        col_stride = 4 if self.columns == 1 else col_stride
        between = (data.layout.strides[-2], out.layout.strides[-2], second.layout.strides[-2])
        batch_strides = tuple(tuple(s) for s in steps)
        skinny = SkinnyGemmSpec(
            self.rows,
            self.depth,
            self.columns,
            step,
            col_stride,
            *between,
            tuple(batch),
            batch_strides,
            self.epilogue,
        )
        lanes = context.isa.lanes
        name = context.kernel("skinny_gemm", skinny, lambda module, name: emit_skinny_gemm(module, name, lanes, skinny))
        count, macs = math.prod(batch), math.prod(batch) * self.rows * self.depth * self.columns
        context.step(name, [h.at() for h in storages], count * units(lanes, skinny), macs / self.rows * 0.2, macs)


def batch_runs(batch: Sequence[int], strides: list[list[int]]) -> Iterator[tuple[int, list[int], list[int]]]:
    """Split a batch into runs of equally spaced products: count, strides between them, and start offset of each
    operand.
    """
    sizes, steps = merge_batch_dims(batch, strides)
    for index in product(*(range(n) for n in sizes[:-1])):
        yield sizes[-1], [s[-1] for s in steps], [sum(i * n for i, n in zip(index, s, strict=False)) for s in steps]


def offset_address(packed: Address, offset: int) -> Address:
    return Address(packed.buffer, packed.offset + offset, packed.index)
