"""Loops around tiles: over the pixels and weight panels of a gemm, static or dynamic, and over the channels of a
pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const

# --------------------------------------------------------------------------------------------------------- channel loop

# Vectorized loop over the channels of a pixel: unrolled for few channels, a loop for many.
#
# This bounds a kernel's code size, whatever number of channels a file declares.

Cover = Callable[[int, int], list[tuple[int, int]]]
MAX_UNROLLED = 8  # vectors


def vector_widths(total: int, max_width: int) -> list[tuple[int, int]]:
    """Vectors that cover ``total`` elements: (width, used lanes)."""
    vectors: list[tuple[int, int]] = []
    while total:
        width = max_width
        while width > 4 and width // 2 >= total:
            width //= 2
        vectors.append((width, min(width, total)))
        total -= min(width, total)
    return vectors


def for_each_channel_vector(
    f: Function, channels: int, max_width: int, cover: Cover, body: Callable[[Operand, int, int], None]
) -> None:
    """``body(first_channel, width, used)`` for every vector of channels.

    ``cover`` splits the channels after the loop into vectors, like ``vector_widths``.
    """
    step = MAX_UNROLLED // 2 * max_width
    looped = 0 if channels <= MAX_UNROLLED * max_width else channels // step * step

    def several(first: Reg, _: list[Reg]) -> list[Reg]:
        for start in range(0, step, max_width):
            body(f.add(first, start), max_width, max_width)
        return []

    if looped:
        f.loop(looped, [], several, step)
    start = looped
    for width, used in cover(channels - looped, max_width):
        body(start, width, used)
        start += width


def byte_offset(f: Function, first: Operand, item: int) -> Operand:
    """The byte offset of an element."""
    return f.mul(first, item) if isinstance(first, Reg) else first * item


# ----------------------------------------------------------------------------------------------------------- tile loops

# The loops around a gemm's tiles: which pixels, which weight panels, in which order.


@dataclass(frozen=True)
class PixelStrides:
    """Strides between rows and between pixels, in bytes."""

    row: int
    pixel: int


@dataclass(frozen=True)
class TileGrid:
    """Output rows, each split into tiles whose sizes differ by at most one pixel.

    Equal tiles waste less than full tiles with a short remainder, at the price of two micro-kernel sizes.
    """

    rows: int
    columns: int
    largest: int  # maximum pixels per tile
    data: PixelStrides  # per output pixel
    out: PixelStrides
    residual: PixelStrides = PixelStrides(0, 0)
    weights: int = field(default=0, kw_only=True)  # stride between the weights of rows, in bytes

    @property
    def tiles(self) -> int:
        return -(-self.columns // self.largest)

    @property
    def small(self) -> int:
        return self.columns // self.tiles

    @property
    def longer(self) -> int:
        """How many tiles have one pixel more."""
        return self.columns % self.tiles

    @property
    def sizes(self) -> list[int]:
        """The distinct tile sizes, larger first."""
        larger = [self.small + 1] if self.longer else []
        return larger + ([self.small] if self.longer < self.tiles else [])

    def late(self, pixels: int) -> bool:
        """Whether tiles of this size are the last of a row: the smaller ones, or all if fewer than two are smaller."""
        return pixels == self.small or self.tiles - self.longer < 2


@dataclass(frozen=True)
class PanelGroup:
    """Consecutive panels of one shape; ``tile`` emits the micro-kernel for a number of pixels."""

    count: int
    size: int  # bytes of a panel
    offset: int  # of the first panel, in bytes of weights
    column: int  # of the first panel's output, in bytes
    width: int  # bytes of output per panel
    tile: Callable[[int], Function]


def emit_tile_loops(
    module: Module, name: str, grid: TileGrid, runs: list[PanelGroup], by_panel: bool, panels_outside: bool
) -> None:
    """A kernel whose work units are tiles, or panels with ``by_panel``; ``panels_outside`` makes panels the outer loop,
    which keeps a panel in cache over all tiles. Arguments: data, weights, output, second operand."""
    loops = _TileLoops(grid, runs)
    f = module.kernel(name)
    loops.start(f, [f.load_arg(PTR, i) for i in range(4)])
    loops.emit(f.arg("begin"), f.arg("end"), by_panel, panels_outside)
    f.ret()


def emit_all_tiles(module: Module, name: str, grid: TileGrid, runs: list[PanelGroup]) -> Function:
    """``name(data, weights, out, second)``: all tiles and panels, as an internal function."""
    loops = _TileLoops(grid, runs)
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    loops.start(f, [f.arg(n) for n in ("data", "weights", "out", "second")])
    loops.emit(const(0, I64), const(grid.rows * grid.tiles, I64), False, False)
    f.ret()
    return f


class _TileLoops:
    def __init__(self, grid: TileGrid, runs: list[PanelGroup]) -> None:
        self.grid, self.runs = grid, runs
        self.functions = {(run.offset, size): run.tile(size) for run in runs for size in grid.sizes}

    def start(self, f: Function, pointers: list[Reg]) -> None:
        self.f = f
        self.data, self.weights, self.out, self.residual = pointers

    def emit(self, begin: Reg, end: Reg, by_panel: bool, panels_outside: bool) -> None:
        f = self.f
        every = const(0, I64), const(self.grid.rows * self.grid.tiles, I64)
        if by_panel:
            first = 0
            for run in self.runs:
                low = self._clamp("smax", begin, first)
                high = self._clamp("smin", end, first + run.count)
                f.for_range(low, high, self._tiles_of_panel(run, first, *every))
                first += run.count
        elif panels_outside:
            for run in self.runs:
                f.for_range(const(0, I64), const(run.count, I64), self._tiles_of_panel(run, 0, begin, end))
        else:
            f.for_range(begin, end, self._panels)

    def _clamp(self, intrinsic: str, a: Reg, b: int) -> Reg:
        return self.f.call(f"llvm.{intrinsic}.i64", I64, a, const(b, I64))

    def _tiles_of_panel(self, run: PanelGroup, first: int, begin: Reg, end: Reg) -> Callable[[Reg], None]:
        """The loop body for a panel, counted from ``first``: tiles [begin, end)."""

        def tiles(panel: Reg) -> None:
            local_panel = self.f.add(panel, -first)
            self.f.for_range(begin, end, lambda tile: self._emit_tile_call(run, local_panel, *self._decode(tile)))

        return tiles

    def _panels(self, tile: Reg) -> None:
        where = self._decode(tile)
        for run in self.runs:

            def once(panel: Reg, _: list[Reg], run: PanelGroup = run) -> list[Reg]:
                self._emit_tile_call(run, panel, *where)
                return []

            self.f.loop(run.count, [], once)

    def _decode(self, tile: Reg) -> tuple[Reg, Reg]:
        """The row of a tile, and its index in the row."""
        if self.grid.rows == 1:
            return const(0, I64), tile
        if self.grid.tiles == 1:
            return tile, const(0, I64)
        return self.f.op("udiv", tile, self.grid.tiles), self.f.op("urem", tile, self.grid.tiles)

    def _emit_tile_call(self, run: PanelGroup, panel: Reg, row: Reg, tile_index: Reg) -> None:
        f, grid = self.f, self.grid
        column = f.mul(tile_index, grid.small)
        if grid.longer:
            column = f.op("add", column, self._clamp("umin", tile_index, grid.longer))

        def offset(steps: PixelStrides) -> Reg:
            return f.op("add", f.mul(row, steps.row), f.mul(column, steps.pixel))

        data = f.gep(self.data, offset(grid.data))
        weights = f.gep(self.weights, f.add(f.mul(panel, run.size), run.offset))
        if grid.weights:
            weights = f.gep(weights, f.mul(row, grid.weights))
        column_offset: Operand = f.add(f.mul(panel, run.width), run.column)
        out = f.gep(f.gep(self.out, offset(grid.out)), column_offset)
        second = f.gep(f.gep(self.residual, offset(grid.residual)), column_offset)
        f.call_void(self._function(run, tile_index), data, weights, out, second)

    def _function(self, run: PanelGroup, tile_index: Reg) -> Function | Reg:
        grid = self.grid
        functions = [self.functions[run.offset, size] for size in grid.sizes]
        if len(functions) == 1:
            return functions[0]
        longer, shorter = (Reg(f"@{m.name}", PTR) for m in functions)
        return self.f.select(self.f.compare("ult", tile_index, grid.longer), longer, shorter)


# --------------------------------------------------------------------------------------------------- dynamic tile loops

# The loops around a gemm's tiles when the number of rows is dynamic.
#
# Rows are split into tiles of one size; the last tile overlaps the one before it and recomputes the same results. Fewer
# rows than one tile are covered by smaller tiles.

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
