"""The loops around a gemm's tiles when the number of rows is dynamic.

Rows are split into tiles of one size; the last tile overlaps the one before it and recomputes the same results. Fewer
rows than one tile are covered by smaller tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const
from edgewright.engine.kernels.tile_loops import PanelGroup

TileCall = Callable[[int, Reg], None]


@dataclass(frozen=True)
class DynamicTileGrid:
    """Tiles of ``largest`` rows; row strides of data, output and residual in bytes."""

    largest: int
    data: int
    out: int
    residual: int

    def tiles(self, rows: int) -> int:
        return max(1, -(-rows // self.largest))


def tile_sizes(largest: int) -> list[int]:
    """Tile sizes: the usual one, and powers of two that sum to any smaller number of rows."""
    return [largest, *(n for n in (8, 4, 2, 1) if n < largest)]


def for_each_tile(f: Function, rows: Reg, largest: int, tile: Reg, call: TileCall) -> None:
    """``call(size, first_row)`` for the rows of a tile."""
    enough = f.compare("uge", rows, largest)

    def full_tile() -> None:
        start = f.call("llvm.umin.i64", I64, f.mul(tile, largest), f.op("sub", rows, largest))
        call(largest, start)

    def remainder() -> None:
        done, left = const(0, I64), rows
        for size in tile_sizes(largest)[1:]:
            tile_count, start = f.op("udiv", left, size), done

            def once(i: Reg, size: int = size, start: Reg = start) -> None:
                call(size, f.op("add", start, f.mul(i, size)))

            f.for_range(const(0, I64), tile_count, once)
            done, left = f.op("add", done, f.mul(tile_count, size)), f.op("urem", left, size)

    f.if_then(enough, full_tile)
    f.if_then(f.op("xor", enough, Reg("true", "i1")), remainder)


def emit_dynamic_tile_loops(
    module: Module, name: str, grid: DynamicTileGrid, runs: list[PanelGroup], panels_outside: bool
) -> None:
    """A kernel whose work units are tiles. Arguments: data, weights, output, second operand, rows."""
    functions = {(run.offset, size): run.tile(size) for run in runs for size in tile_sizes(grid.largest)}
    f = module.kernel(name)
    data, weights, out, second = (f.load_arg(PTR, i) for i in range(4))
    rows = f.load_arg(I64, 4)

    def emit_panel_tile(run: PanelGroup, panel: Reg, tile: Reg) -> None:
        panel_weights = f.gep(weights, f.add(f.mul(panel, run.size), run.offset))
        column_offset = f.add(f.mul(panel, run.width), run.column)

        def call(size: int, row: Reg) -> None:
            pointers = [f.gep(data, f.mul(row, grid.data)), panel_weights]
            pointers += [
                f.gep(f.gep(p, f.mul(row, n)), column_offset) for p, n in ((out, grid.out), (second, grid.residual))
            ]
            f.call_void(functions[run.offset, size], *pointers)

        for_each_tile(f, rows, grid.largest, tile, call)

    begin, end, zero = f.arg("begin"), f.arg("end"), const(0, I64)

    def panels(run: PanelGroup, body: Callable[[Reg], None]) -> None:
        f.for_range(zero, const(run.count, I64), body)

    if panels_outside:
        for run in runs:
            panels(run, lambda panel, run=run: f.for_range(begin, end, lambda tile: emit_panel_tile(run, panel, tile)))  # type: ignore[misc]
    else:

        def all_panels(tile: Reg) -> None:
            for run in runs:
                panels(run, lambda panel, run=run: emit_panel_tile(run, panel, tile))  # type: ignore[misc]

        f.for_range(begin, end, all_panels)
    f.ret()
