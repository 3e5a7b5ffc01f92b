"""Winograd's way for 3x3 windows: tiles of m x m outputs by (m+2)^2 small products.

F(2x2) needs 2.25 times fewer products than the window itself and F(4x4) four times fewer. With h = m + 2, an input
patch becomes h*h points, each point is multiplied by its own matrix of weights, and the points of the result become
m*m outputs. Points lie as [h*h][tiles][channels]. Here are the patches, whatever their elements, and the rest in single
precision; ``winograd8.py`` has it for bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, element_type, vec
from edgewright.engine.codegen.epilogue import Epilogue, apply_epilogue
from edgewright.engine.codegen.vector import fma
from edgewright.engine.kernels import gemm
from edgewright.ir.graph import Array

_FILTER_TRANSFORM = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
}  # fmt: skip


def transform_weights(filters: Array, m: int) -> Array:
    """``filters`` [channels, 3, 3, inputs] as [points, channels, inputs]."""
    g = np.array(_FILTER_TRANSFORM[m])
    taps = np.ascontiguousarray(filters.transpose(1, 2, 0, 3), np.float32).reshape(9, -1)
    return (np.kron(g, g).astype(np.float32) @ taps).reshape(-1, filters.shape[0], filters.shape[3])


def pack_weights(room: Array, filters: Array, m: int, made: Sequence[gemm.Panel]) -> None:
    """For each point the panels of its matrix; a few channels at a time, as this is large."""
    points = room.reshape((m + 2) ** 2, -1)
    start = offset = 0
    for panel in made:
        size = gemm.packed_size([panel], filters.shape[3])
        for point, matrix in zip(points, transform_weights(filters[start : start + panel.used], m), strict=True):
            gemm.pack_weights(point[offset : offset + size], matrix, None, [panel])
        start, offset = start + panel.used, offset + size


@dataclass(frozen=True)
class PatchRow:
    """One row of patches of the input, or of tiles of the output; steps in bytes."""

    m: int
    tiles: int  # of a row
    channels: int
    row: int
    pixel: int
    point: int  # from a point to the next
    item: int = 4  # bytes of an element of a point: single precision, or 16 bits made of bytes

    @property
    def side(self) -> int:
        return self.m + 2


class _LinearOps:
    """Sums with small factors, of reals or of integers."""

    def __init__(self, f: Function) -> None:
        self.f = f

    def _real(self, a: Reg) -> bool:
        return element_type(a.type) == "float"

    def add(self, a: Reg, b: Reg) -> Reg:
        return self.f.op("fadd" if self._real(a) else "add", a, b)

    def sub(self, a: Reg, b: Reg) -> Reg:
        return self.f.op("fsub" if self._real(a) else "sub", a, b)

    def times(self, a: Reg, factor: int, b: Reg) -> Reg:
        """a * factor + b."""
        if self._real(a):
            return fma(self.f, a, const(factor, a.type), b)
        return self.f.op("add", self.f.op("mul", a, const(factor, a.type)), b)


# Which outputs of the input transform are made together, and what they need.
_INPUT_GROUPS: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {
    2: {(0,): (0, 2), (1, 2): (1, 2), (3,): (1, 3)},
    4: {(0,): (0, 2, 4), (1, 2): (1, 2, 3, 4), (3, 4): (1, 2, 3, 4), (5,): (1, 3, 5)},
}


def _input_transform(f: Function, m: int, which: tuple[int, ...], d: dict[int, Reg]) -> dict[int, Reg]:
    """One dimension of the input transform: the outputs ``which``."""
    o = _LinearOps(f)
    if m == 2:
        if which == (1, 2):
            return {1: o.add(d[1], d[2]), 2: o.sub(d[2], d[1])}
        return {0: o.sub(d[0], d[2])} if which == (0,) else {3: o.sub(d[1], d[3])}
    if which == (1, 2):
        even, odd = o.times(d[2], -4, d[4]), o.times(d[1], -4, d[3])
        return {1: o.add(even, odd), 2: o.sub(even, odd)}
    if which == (3, 4):
        even, odd = o.sub(d[4], d[2]), o.sub(d[3], d[1])
        return {3: o.times(odd, 2, even), 4: o.times(odd, -2, even)}
    a, b, c = (0, 2, 4) if which == (0,) else (1, 3, 5)
    return {which[0]: o.times(d[a], 4, o.times(d[b], -5, d[c]))}


def _output_transform(f: Function, m: int, x: list[Reg]) -> list[Reg]:
    """One dimension of the output transform."""
    o = _LinearOps(f)
    total, apart = o.add(x[1], x[2]), o.sub(x[1], x[2])
    if m == 2:
        return [o.add(x[0], total), o.sub(apart, x[3])]
    far, wide = o.add(x[3], x[4]), o.sub(x[3], x[4])
    ends = o.add(o.add(x[0], total), far), o.add(o.times(wide, 8, apart), x[5])
    return [ends[0], o.times(wide, 2, apart), o.times(far, 4, total), ends[1]]


def emit_input_transform(module: Module, lanes: int, patches: PatchRow) -> Function:
    """``patches(data, points)``: the points of one row of patches; ``lanes`` elements at a time."""
    f = module.function("patches", [(PTR, "data"), (PTR, "points")])
    m, item = patches.m, patches.item

    def load(data: Reg, offset: int) -> Reg:
        if item == 4:
            return f.load(vec(lanes, "float"), data, offset, 4)
        return f.cast("zext", f.load(vec(lanes, "i8"), data, offset), vec(lanes, "i16"))

    def block(_: Reg, now: list[Reg]) -> list[Reg]:
        data, points = now
        for made, needed in _INPUT_GROUPS[m].items():
            lines: dict[int, dict[int, Reg]] = {}
            for column in range(patches.side):
                d = {r: load(data, r * patches.row + column * patches.pixel) for r in needed}
                for r, x in _input_transform(f, m, made, d).items():
                    lines.setdefault(r, {})[column] = x
            for r, line in lines.items():
                for which in _INPUT_GROUPS[m]:
                    for c, x in _input_transform(f, m, which, line).items():
                        f.store(x, points, (r * patches.side + c) * patches.point, item)
        return [f.gep(data, lanes * (4 if item == 4 else 1)), f.gep(points, item * lanes)]

    def patch(i: Reg, _: list[Reg]) -> list[Reg]:
        data = f.gep(f.arg("data"), f.mul(i, m * patches.pixel))
        points = f.gep(f.arg("points"), f.mul(i, item * patches.channels))
        f.loop(patches.channels // lanes, [data, points], block)
        return []

    f.loop(patches.tiles, [], patch)
    f.ret()
    return f


@dataclass(frozen=True)
class OutputTiles:
    """Where tiles go: the image may end inside the last of a row or column."""

    patches: PatchRow  # steps of the output
    columns: int  # outputs of a row
    second_row: int
    second_pixel: int
    tail: Epilogue = ()


TileBody = Callable[[Function, "list[Reg]", int], "list[Reg]"]


def emit_output_transform(module: Module, lanes: int, outputs: OutputTiles) -> Function:
    """The outputs of points in single precision."""
    return emit_output_tiles(
        module, outputs, lanes, lambda f, now, columns: _output_tile(f, lanes, outputs, now, columns)
    )


def emit_output_tiles(module: Module, outputs: OutputTiles, block: int, body: TileBody) -> Function:
    """``outputs(points, out, second, bias, rows)``: one row of tiles, of whose outputs ``rows`` rows are stored.

    ``body`` is given the pointers for ``block`` channels of a tile and the columns that are stored, and moves them on.
    """
    names = [(PTR, n) for n in ("points", "out", "second", "bias")]
    f = module.function("outputs", [*names, (I64, "rows")])
    patches = outputs.patches
    whole, rest = divmod(outputs.columns, patches.m)

    def tiles(first: int, count: int, columns: int) -> None:
        def tile(i: Reg, _: list[Reg]) -> list[Reg]:
            index = f.add(i, first)
            start = [
                f.gep(f.arg("points"), f.mul(index, 4 * patches.channels)),
                f.gep(f.arg("out"), f.mul(index, patches.m * patches.pixel)),
                f.gep(f.arg("second"), f.mul(index, patches.m * outputs.second_pixel)),
                f.arg("bias"),
            ]
            f.loop(patches.channels // block, start, lambda _, now: body(f, now, columns))
            return []

        f.loop(count, [], tile)

    if whole:
        tiles(0, whole, patches.m)
    if rest:
        tiles(whole, 1, rest)
    f.ret()
    return f


def _output_tile(f: Function, lanes: int, outputs: OutputTiles, now: list[Reg], columns: int) -> list[Reg]:
    points, out, second, bias = now
    patches, kind = outputs.patches, vec(lanes, "float")
    side, m = patches.side, patches.m
    lines = []
    for c in range(side):
        column = [f.load(kind, points, (r * side + c) * patches.point, 4) for r in range(side)]
        lines.append(_output_transform(f, m, column))
    shift = f.load(kind, bias, 0, 4)

    def store(r: int) -> None:
        for c, x in enumerate(_output_transform(f, m, [line[r] for line in lines])[:columns]):
            at = r * outputs.second_row + c * outputs.second_pixel
            load = lambda at=at: f.load(kind, second, at, 4)  # noqa: E731
            value = apply_epilogue(f, f.op("fadd", x, shift), outputs.tail, load)
            f.store(value, out, r * patches.row + c * patches.pixel, 4)

    store(0)
    for r in range(1, m):
        f.if_then(f.compare("ugt", f.arg("rows"), r), lambda r=r: store(r))  # type: ignore[misc]
    return [f.gep(p, 4 * lanes) for p in now]


@dataclass(frozen=True)
class PointGemm:
    """Products of all points: ``tiles`` rows of each point by its own panels."""

    count: int
    tiles: int
    largest: int
    row: int  # bytes from a tile's inputs to the next one's
    data: int  # bytes of a point
    out: int

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(pixels of a tile of the product, how many): sizes that differ by one at most."""
        count = -(-self.tiles // self.largest)
        small, longer = divmod(self.tiles, count)
        return tuple((s, n) for s, n in ((small + 1, longer), (small, count - longer)) if n)


def emit_point_gemm(
    f: Function, points: PointGemm, tiles: dict[int, Function], data: Reg, weights: Reg, out: Reg
) -> None:
    """One panel of one point, for every row."""
    row_in, row_out, done = points.row, points.out // points.tiles, 0
    for size, count in points.sizes:

        def once(i: Reg, _: list[Reg], size: int = size, done: int = done) -> list[Reg]:
            row = f.add(f.mul(i, size), done)
            target = f.gep(out, f.mul(row, row_out))
            f.call_void(tiles[size], f.gep(data, f.mul(row, row_in)), weights, target, target)
            return []

        f.loop(count, [], once)
        done += size * count
