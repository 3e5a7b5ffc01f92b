"""The loops around a product's tiles: which pixels, which panels of weights, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const


@dataclass(frozen=True)
class PixelStrides:
    """Bytes from one pixel, or row of pixels, to the next."""

    row: int
    pixel: int


@dataclass(frozen=True)
class TileGrid:
    """Output pixels in rows, cut along each row in tiles that differ by one pixel at most."""

    rows: int
    columns: int
    largest: int  # pixels of a tile
    data: PixelStrides  # per output pixel
    out: PixelStrides
    second: PixelStrides = PixelStrides(0, 0)
    weights: int = field(default=0, kw_only=True)  # bytes from a row's weights to the next row's

    @property
    def tiles(self) -> int:
        return -(-self.columns // self.largest)

    @property
    def small(self) -> int:
        return self.columns // self.tiles

    @property
    def longer(self) -> int:
        """Tiles that have one pixel more."""
        return self.columns % self.tiles

    @property
    def sizes(self) -> list[int]:
        """Of tiles, the larger first."""
        larger = [self.small + 1] if self.longer else []
        return larger + ([self.small] if self.longer < self.tiles else [])

    def late(self, pixels: int) -> bool:
        """Whether tiles of so many pixels come last, several of them; all do if few are smaller than the others."""
        return pixels == self.small or self.tiles - self.longer < 2


@dataclass(frozen=True)
class PanelGroup:
    """Panels of one form: ``tile`` makes the function for a number of pixels."""

    count: int
    size: int  # bytes of a panel
    offset: int  # of the first panel, in bytes of weights
    column: int  # of the first panel's output, in bytes
    width: int  # bytes of output per panel
    tile: Callable[[int], Function]


def emit_tile_loops(
    module: Module, name: str, grid: TileGrid, runs: list[PanelGroup], by_panel: bool, panels_outside: bool
) -> None:
    """A kernel whose units are tiles, or with ``by_panel`` panels. Its slots: data, weights, output, second operand."""
    nest = _TileLoops(grid, runs)
    f = module.kernel(name)
    nest.start(f, [f.load_arg(PTR, i) for i in range(4)])
    nest.emit(f.arg("begin"), f.arg("end"), by_panel, panels_outside)
    f.ret()


def emit_all_tiles(module: Module, name: str, grid: TileGrid, runs: list[PanelGroup]) -> Function:
    """``name(data, weights, out, second)``: all tiles and panels, as a function of the module."""
    nest = _TileLoops(grid, runs)
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    nest.start(f, [f.arg(n) for n in ("data", "weights", "out", "second")])
    nest.emit(const(0, I64), const(grid.rows * grid.tiles, I64), False, False)
    f.ret()
    return f


class _TileLoops:
    def __init__(self, grid: TileGrid, runs: list[PanelGroup]) -> None:
        self.grid, self.runs = grid, runs
        self.functions = {(run.offset, size): run.tile(size) for run in runs for size in grid.sizes}

    def start(self, f: Function, pointers: list[Reg]) -> None:
        self.f = f
        self.data, self.weights, self.out, self.second = pointers

    def emit(self, begin: Reg, end: Reg, by_panel: bool, panels_outside: bool) -> None:
        f = self.f
        every = const(0, I64), const(self.grid.rows * self.grid.tiles, I64)
        if by_panel:
            first = 0
            for run in self.runs:
                low = self._bounded("smax", begin, first)
                high = self._bounded("smin", end, first + run.count)
                f.for_range(low, high, self._panel_of(run, first, *every))
                first += run.count
        elif panels_outside:
            for run in self.runs:
                f.for_range(const(0, I64), const(run.count, I64), self._panel_of(run, 0, begin, end))
        else:
            f.for_range(begin, end, self._panels)

    def _bounded(self, how: str, a: Reg, b: int) -> Reg:
        return self.f.call(f"llvm.{how}.i64", I64, a, const(b, I64))

    def _panel_of(self, run: PanelGroup, first: int, begin: Reg, end: Reg) -> Callable[[Reg], None]:
        """What is done for a panel, counted from ``first``: tiles ``begin`` to ``end``."""

        def tiles(panel: Reg) -> None:
            own = self.f.add(panel, -first)
            self.f.for_range(begin, end, lambda tile: self._one(run, own, *self._decode(tile)))

        return tiles

    def _panels(self, tile: Reg) -> None:
        where = self._decode(tile)
        for run in self.runs:

            def once(panel: Reg, _: list[Reg], run: PanelGroup = run) -> list[Reg]:
                self._one(run, panel, *where)
                return []

            self.f.loop(run.count, [], once)

    def _decode(self, tile: Reg) -> tuple[Reg, Reg]:
        """The row of a tile, and its place in the row."""
        if self.grid.rows == 1:
            return const(0, I64), tile
        if self.grid.tiles == 1:
            return tile, const(0, I64)
        return self.f.op("udiv", tile, self.grid.tiles), self.f.op("urem", tile, self.grid.tiles)

    def _one(self, run: PanelGroup, panel: Reg, row: Reg, place: Reg) -> None:
        f, grid = self.f, self.grid
        column = f.mul(place, grid.small)
        if grid.longer:
            column = f.op("add", column, self._bounded("umin", place, grid.longer))

        def move(steps: PixelStrides) -> Reg:
            return f.op("add", f.mul(row, steps.row), f.mul(column, steps.pixel))

        data = f.gep(self.data, move(grid.data))
        weights = f.gep(self.weights, f.add(f.mul(panel, run.size), run.offset))
        if grid.weights:
            weights = f.gep(weights, f.mul(row, grid.weights))
        beside: Operand = f.add(f.mul(panel, run.width), run.column)
        out = f.gep(f.gep(self.out, move(grid.out)), beside)
        second = f.gep(f.gep(self.second, move(grid.second)), beside)
        f.call_void(self._function(run, place), data, weights, out, second)

    def _function(self, run: PanelGroup, place: Reg) -> Function | Reg:
        grid = self.grid
        made = [self.functions[run.offset, size] for size in grid.sizes]
        if len(made) == 1:
            return made[0]
        longer, shorter = (Reg(f"@{m.name}", PTR) for m in made)
        return self.f.select(self.f.compare("ult", place, grid.longer), longer, shorter)
