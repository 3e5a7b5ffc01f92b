"""Matmul of two run-time operands with dynamic shapes.

The second operand is packed first into panels, one row per depth element, zero-padded to full vectors. Masked loads and
stores keep all accesses within the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue, reads_second_operand
from edgewright.engine.codegen.vector import fma, transpose
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.dynamic_tile_loops import for_each_tile, tile_sizes
from edgewright.engine.kernels.gemm import max_tile_pixels
from edgewright.engine.kernels.lane_mask import first_lanes_mask, masked_load, masked_store

PANEL_VECTORS = 2  # per panel


def panel_columns(isa: ISA) -> int:
    return PANEL_VECTORS * isa.lanes


def max_tile_rows(isa: ISA) -> int:
    return max_tile_pixels(isa, PANEL_VECTORS)


@dataclass(frozen=True)
class MatmulShape:
    """The shape of one matrix product."""

    rows: int
    depth: int
    columns: int

    def panels(self, isa: ISA) -> int:
        return -(-self.columns // panel_columns(isa))

    def panel(self, isa: ISA) -> int:
        """Size of a packed panel in bytes; the depth is rounded up to full transposition tiles."""
        return 4 * panel_columns(isa) * (-(-self.depth // isa.lanes) * isa.lanes)

    def packed(self, isa: ISA) -> int:
        return self.panels(isa) * self.panel(isa)


def emit_dynamic_packing(module: Module, name: str, isa: ISA, contiguous: str) -> None:
    """Work units are panels, matrix by matrix. ``contiguous``: ``rows``, ``columns`` or ``neither``.

    Arguments: matrices, panels, depth, columns, strides of rows, columns, matrices, panels; panels per matrix.
    """
    f, lanes = module.kernel(name), isa.lanes
    source, target = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    depth, columns, step, col_stride, matrix, panel, panels = (f.load_arg(I64, i) for i in range(2, 9))

    def unit(index: Reg) -> None:
        matrix_index, panel_index = f.op("udiv", index, panels), f.op("urem", index, panels)
        panel_target, matrix_source = (
            f.gep(target, f.op("mul", index, panel)),
            f.gep(source, f.op("mul", matrix_index, matrix)),
        )
        start = f.mul(panel_index, panel_columns(isa))
        for v in range(PANEL_VECTORS):
            column = f.add(start, v * lanes)
            packed = f.gep(panel_target, 4 * v * lanes)
            if contiguous == "columns":
                _pack_transposed(f, isa, (matrix_source, packed, column), (depth, columns, col_stride))
            elif contiguous == "rows":
                _pack_rows(f, isa, (matrix_source, packed, column), (depth, columns, step))
            else:
                _pack_strided(f, isa, (matrix_source, packed, column), (depth, columns, step, col_stride))

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _pack_rows(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg]) -> None:
    (source, packed, column), (depth, columns, step) = pointers, numbers
    mask = first_lanes_mask(f, f.op("sub", columns, column), isa.lanes)
    start = f.gep(source, f.mul(column, 4))

    def row(k: Reg) -> None:
        x = masked_load(f, vec(isa.lanes, "float"), f.gep(start, f.op("mul", k, step)), mask)
        f.store(x, f.gep(packed, f.mul(k, 4 * panel_columns(isa))))

    f.for_range(const(0, I64), depth, row)


def _pack_transposed(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg]) -> None:
    """Transpose square tiles in registers; missing columns are 0."""
    (source, packed, column), (depth, columns, col_stride) = pointers, numbers
    lanes, kind = isa.lanes, vec(isa.lanes, "float")

    def square(k: Reg) -> None:
        mask, rows = first_lanes_mask(f, f.op("sub", depth, k), lanes), []
        for i in range(lanes):
            index = f.add(column, i)
            in_range = f.splat(f.compare("slt", index, columns), lanes)
            valid = f.op("and", mask, in_range)
            rows.append(masked_load(f, kind, f.gep(f.gep(source, f.op("mul", index, col_stride)), f.mul(k, 4)), valid))
        for i, x in enumerate(transpose(f, rows)):
            f.store(x, f.gep(packed, f.mul(f.add(k, i), 4 * panel_columns(isa))))

    f.for_range(const(0, I64), depth, square, lanes)


def _pack_strided(f: Function, isa: ISA, pointers: tuple[Reg, Reg, Reg], numbers: tuple[Reg, Reg, Reg, Reg]) -> None:
    (source, packed, column), (depth, columns, step, col_stride) = pointers, numbers

    def row(k: Reg) -> None:
        row_address = f.gep(packed, f.mul(k, 4 * panel_columns(isa)))
        f.store(const(0, vec(isa.lanes, "float")), row_address)
        count = f.call("llvm.smin.i64", I64, f.op("sub", columns, column), const(isa.lanes, I64))

        def element(i: Reg) -> None:
            offset = f.op("add", f.op("mul", k, step), f.op("mul", f.op("add", column, i), col_stride))
            f.store(f.load("float", f.gep(source, offset)), f.gep(row_address, f.mul(i, 4)))

        f.for_range(const(0, I64), count, element)

    f.for_range(const(0, I64), depth, row)


# A tile's arguments after its pointers: depth, row strides of data, output and second operand, remaining columns.
_TILE_PARAMS = ("depth", "data_step", "out_step", "second_step", "left")


def emit_dynamic_matmul(module: Module, name: str, isa: ISA, epilogue: Epilogue) -> None:
    """Work units are tiles of rows, matrix by matrix.

    Arguments: data, panels, output, second operand; rows, depth, columns; row strides of data, output and second
    operand, then their matrix strides and that of the panels; panel size in bytes; tiles and panels per matrix.
    """
    tile_functions = {size: _emit_tile(module, isa, size, epilogue) for size in tile_sizes(max_tile_rows(isa))}
    f, wide = module.kernel(name), panel_columns(isa)
    addresses = [f.load_arg(PTR, i) for i in range(4)]
    rows, depth, columns, *rest = (f.load_arg(I64, i) for i in range(4, 17))
    steps, (per_data, per_out, per_second, per_packed), (panel, tiles, panels) = rest[:3], rest[3:7], rest[7:]

    def unit(index: Reg) -> None:
        product, tile = f.op("udiv", index, tiles), f.op("urem", index, tiles)
        moves = (per_data, per_packed, per_out, per_second)
        data, packed, out, second = (f.gep(a, f.op("mul", product, m)) for a, m in zip(addresses, moves, strict=True))

        def multiply_panel(panel_index: Reg) -> None:
            start = f.mul(panel_index, wide)
            left, column_offset = f.op("sub", columns, start), f.mul(start, 4)
            weights = f.gep(packed, f.op("mul", panel_index, panel))

            def call(size: int, row: Reg) -> None:
                row_pointers = [f.gep(p, f.op("mul", row, s)) for p, s in zip((data, out, second), steps, strict=True)]
                pointers = (
                    row_pointers[0],
                    weights,
                    f.gep(row_pointers[1], column_offset),
                    f.gep(row_pointers[2], column_offset),
                )
                f.call_void(tile_functions[size], *pointers, depth, *steps, left)

            for_each_tile(f, rows, max_tile_rows(isa), tile, call)

        f.for_range(const(0, I64), panels, multiply_panel)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile(module: Module, isa: ISA, rows: int, epilogue: Epilogue) -> Function:
    names = ("data", "weights", "out", "second")
    f = module.function(f"open_{rows}", [*((PTR, n) for n in names), *((I64, n) for n in _TILE_PARAMS)])
    kind = vec(isa.lanes, "float")
    offsets = [f.mul(f.arg("data_step"), r) if r else const(0, I64) for r in range(rows)]

    def multiply(_: Reg, now: list[Reg]) -> list[Reg]:
        data, weights, *sums = now
        weight_row = [f.load(kind, weights, 4 * v * isa.lanes) for v in range(PANEL_VECTORS)]
        for r in range(rows):
            x = f.splat(f.load("float", f.gep(data, offsets[r])), isa.lanes)
            for v, w in enumerate(weight_row):
                sums[r * PANEL_VECTORS + v] = fma(f, x, w, sums[r * PANEL_VECTORS + v])
        return [f.gep(data, 4), f.gep(weights, 4 * panel_columns(isa)), *sums]

    zeros = [const(0, kind)] * (rows * PANEL_VECTORS)
    sums = f.loop(f.arg("depth"), [f.arg("data"), f.arg("weights"), *zeros], multiply)[2:]
    masks = [first_lanes_mask(f, f.add(f.arg("left"), -v * isa.lanes), isa.lanes) for v in range(PANEL_VECTORS)]
    for r in range(rows):
        out, second = (f.gep(f.arg(n), f.mul(f.arg(f"{n}_step"), r)) if r else f.arg(n) for n in ("out", "second"))
        for v, mask in enumerate(masks):
            second_value = (
                masked_load(f, kind, f.gep(second, 4 * v * isa.lanes), mask) if reads_second_operand(epilogue) else None
            )
            load = None if second_value is None else lambda b=second_value: b
            total = apply_epilogue(f, sums[r * PANEL_VECTORS + v], epilogue, load)
            masked_store(f, total, f.gep(out, 4 * v * isa.lanes), mask)
    f.ret()
    return f
