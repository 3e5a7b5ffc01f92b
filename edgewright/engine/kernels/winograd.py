"""Winograd convolution F(m x m, 3 x 3) in float32.

A tile of m x m outputs is Y = A^T [(G g G^T) * (B^T d B)] A, with the filter g, the input patch d of h x h elements
(h = m + 2) and an elementwise product. Summed over input channels, each of the h*h points becomes a gemm of its own,
[tiles, inputs] x [inputs, outputs], with 2.25 (m = 2) or 4 (m = 4) times fewer multiplications than the direct
convolution. G g G^T is computed ahead of time; B^T d B and A^T x A are a few additions per element, done one dimension
at a time. The points of a row of tiles are stored as [h*h][tiles][channels], small enough to stay in cache. See Lavin
and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016). ``int8_winograd.py`` has the int8 variant; input
patches are common to both.
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
    """G g G^T: ``filters`` [channels, 3, 3, inputs] to [points, channels, inputs]."""
    g = np.array(_FILTER_TRANSFORM[m])
    taps = np.ascontiguousarray(filters.transpose(1, 2, 0, 3), np.float32).reshape(9, -1)
    return (np.kron(g, g).astype(np.float32) @ taps).reshape(-1, filters.shape[0], filters.shape[3])


def pack_weights(buffer: Array, filters: Array, m: int, panels: Sequence[gemm.Panel]) -> None:
    """Pack one gemm operand per point; a panel at a time, to bound the temporary memory."""
    points = buffer.reshape((m + 2) ** 2, -1)
    start = offset = 0
    for panel in panels:
        size = gemm.packed_size([panel], filters.shape[3])
        for point, matrix in zip(points, transform_weights(filters[start : start + panel.used], m), strict=True):
            gemm.pack_weights(point[offset : offset + size], matrix, None, [panel])
        start, offset = start + panel.used, offset + size


@dataclass(frozen=True)
class PatchRow:
    """One row of input patches, or of output tiles; strides in bytes."""

    m: int
    tiles: int  # per row
    channels: int
    row: int
    pixel: int
    point: int  # between points
    item: int = 4  # bytes per element of a point: float32, or int16 from an 8-bit input

    @property
    def side(self) -> int:
        return self.m + 2


class _LinearOps:
    """Additions and small constant factors, on float32 or integers."""

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


# Groups of outputs of B^T that share subexpressions, and the inputs they read: fewer registers than all at once.
_INPUT_GROUPS: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {
    2: {(0,): (0, 2), (1, 2): (1, 2), (3,): (1, 3)},
    4: {(0,): (0, 2, 4), (1, 2): (1, 2, 3, 4), (3, 4): (1, 2, 3, 4), (5,): (1, 3, 5)},
}


def _input_transform(f: Function, m: int, outputs: tuple[int, ...], d: dict[int, Reg]) -> dict[int, Reg]:
    """B^T d in one dimension: the ``outputs`` with these indices."""
    o = _LinearOps(f)
    if m == 2:
        if outputs == (1, 2):
            return {1: o.add(d[1], d[2]), 2: o.sub(d[2], d[1])}
        return {0: o.sub(d[0], d[2])} if outputs == (0,) else {3: o.sub(d[1], d[3])}
    if outputs == (1, 2):
        even, odd = o.times(d[2], -4, d[4]), o.times(d[1], -4, d[3])
        return {1: o.add(even, odd), 2: o.sub(even, odd)}
    if outputs == (3, 4):
        even, odd = o.sub(d[4], d[2]), o.sub(d[3], d[1])
        return {3: o.times(odd, 2, even), 4: o.times(odd, -2, even)}
    a, b, c = (0, 2, 4) if outputs == (0,) else (1, 3, 5)
    return {outputs[0]: o.times(d[a], 4, o.times(d[b], -5, d[c]))}


def _output_transform(f: Function, m: int, x: list[Reg]) -> list[Reg]:
    """A^T x in one dimension."""
    o = _LinearOps(f)
    total, difference = o.add(x[1], x[2]), o.sub(x[1], x[2])
    if m == 2:
        return [o.add(x[0], total), o.sub(difference, x[3])]
    outer_sum, outer_difference = o.add(x[3], x[4]), o.sub(x[3], x[4])
    ends = o.add(o.add(x[0], total), outer_sum), o.add(o.times(outer_difference, 8, difference), x[5])
    return [ends[0], o.times(outer_difference, 2, difference), o.times(outer_sum, 4, total), ends[1]]


def emit_input_transform(module: Module, lanes: int, patches: PatchRow) -> Function:
    """Emit ``patches(data, points)``: B^T d B for one row of patches, ``lanes`` channels at a time."""
    f = module.function("patches", [(PTR, "data"), (PTR, "points")])
    m, item = patches.m, patches.item

    def load(data: Reg, offset: int) -> Reg:
        if item == 4:
            return f.load(vec(lanes, "float"), data, offset, 4)
        return f.cast("zext", f.load(vec(lanes, "i8"), data, offset), vec(lanes, "i16"))

    def block(_: Reg, now: list[Reg]) -> list[Reg]:
        data, points = now
        for outputs, needed in _INPUT_GROUPS[m].items():
            half_transformed: dict[int, dict[int, Reg]] = {}
            for column in range(patches.side):
                d = {r: load(data, r * patches.row + column * patches.pixel) for r in needed}
                for r, x in _input_transform(f, m, outputs, d).items():
                    half_transformed.setdefault(r, {})[column] = x
            for r, line in half_transformed.items():
                for group in _INPUT_GROUPS[m]:
                    for c, x in _input_transform(f, m, group, line).items():
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
    """The output tiles of a row; the last one may extend beyond the image."""

    patches: PatchRow  # steps of the output
    columns: int  # output pixels per row
    residual_row: int
    residual_pixel_stride: int
    epilogue: Epilogue = ()


TileBody = Callable[[Function, "list[Reg]", int], "list[Reg]"]


def emit_output_transform(module: Module, lanes: int, outputs: OutputTiles) -> Function:
    """Emit A^T x A with the epilogue, in float32."""
    return emit_output_tiles(
        module, outputs, lanes, lambda f, now, columns: _output_tile(f, lanes, outputs, now, columns)
    )


def emit_output_tiles(module: Module, outputs: OutputTiles, block: int, body: TileBody) -> Function:
    """Emit ``outputs(points, out, second, bias, rows)``: one row of tiles, of which ``rows`` output rows are stored.

    ``body`` takes the pointers for ``block`` channels of a tile and the number of columns to store, and returns the
    pointers for the next block.
    """
    names = [(PTR, n) for n in ("points", "out", "second", "bias")]
    f = module.function("outputs", [*names, (I64, "rows")])
    patches = outputs.patches
    full_tiles, rest = divmod(outputs.columns, patches.m)

    def tiles(first: int, count: int, columns: int) -> None:
        def tile(i: Reg, _: list[Reg]) -> list[Reg]:
            index = f.add(i, first)
            start = [
                f.gep(f.arg("points"), f.mul(index, 4 * patches.channels)),
                f.gep(f.arg("out"), f.mul(index, patches.m * patches.pixel)),
                f.gep(f.arg("second"), f.mul(index, patches.m * outputs.residual_pixel_stride)),
                f.arg("bias"),
            ]
            f.loop(patches.channels // block, start, lambda _, now: body(f, now, columns))
            return []

        f.loop(count, [], tile)

    if full_tiles:
        tiles(0, full_tiles, patches.m)
    if rest:
        tiles(full_tiles, 1, rest)
    f.ret()
    return f


def _output_tile(f: Function, lanes: int, outputs: OutputTiles, pointers: list[Reg], columns: int) -> list[Reg]:
    points, out, second, bias = pointers
    patches, kind = outputs.patches, vec(lanes, "float")
    side, m = patches.side, patches.m
    half_transformed = []
    for c in range(side):
        column = [f.load(kind, points, (r * side + c) * patches.point, 4) for r in range(side)]
        half_transformed.append(_output_transform(f, m, column))
    bias_value = f.load(kind, bias, 0, 4)

    def store(r: int) -> None:
        for c, x in enumerate(_output_transform(f, m, [line[r] for line in half_transformed])[:columns]):
            at = r * outputs.residual_row + c * outputs.residual_pixel_stride
            load = lambda at=at: f.load(kind, second, at, 4)  # noqa: E731
            value = apply_epilogue(f, f.op("fadd", x, bias_value), outputs.epilogue, load)
            f.store(value, out, r * patches.row + c * patches.pixel, 4)

    store(0)
    for r in range(1, m):
        f.if_then(f.compare("ugt", f.arg("rows"), r), lambda r=r: store(r))  # type: ignore[misc]
    return [f.gep(p, 4 * lanes) for p in pointers]


@dataclass(frozen=True)
class PointGemm:
    """The gemms of all points: ``tiles`` rows of each point by that point's panels."""

    count: int
    tiles: int
    largest: int
    row: int  # stride between the inputs of tiles, in bytes
    data: int  # size of a point's inputs, in bytes
    out: int

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(rows of a gemm tile, number of such tiles): sizes differ by at most one."""
        count = -(-self.tiles // self.largest)
        small, longer = divmod(self.tiles, count)
        return tuple((s, n) for s, n in ((small + 1, longer), (small, count - longer)) if n)


def emit_point_gemm(
    f: Function, points: PointGemm, tiles: dict[int, Function], data: Reg, weights: Reg, out: Reg
) -> None:
    """Multiply all rows of one point by one panel."""
    row_in, row_out, done = points.row, points.out // points.tiles, 0
    for size, count in points.sizes:

        def once(i: Reg, _: list[Reg], size: int = size, done: int = done) -> list[Reg]:
            row = f.add(f.mul(i, size), done)
            target = f.gep(out, f.mul(row, row_out))
            f.call_void(tiles[size], f.gep(data, f.mul(row, row_in)), weights, target, target)
            return []

        f.loop(count, [], once)
        done += size * count
