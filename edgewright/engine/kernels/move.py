"""Copies: the padding of an image, planar to channels-last, transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.requant import Affine, quantize_to_int32
from edgewright.engine.codegen.vector import transpose

# --------------------------------------------------------------------------------------------------------------- border

# Fills the padding of an image: the bytes before, between and after its rows.


@dataclass(frozen=True)
class BorderSpec:
    """Sizes in bytes: ``before`` precedes the first pixel, ``between`` follows every row, ``after`` the last row's."""

    rows: int
    row: int
    width: int  # of a row without padding
    before: int
    between: int
    after: int

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.rows, self.row, self.width, self.before, self.between, self.after)


def emit_border_kernel(module: Module, name: str, item: int = 1) -> None:
    """Work units are the gaps: before the first row, after each row.

    Arguments: first pixel, fill value, ``BorderSpec.slots``.

    One kernel serves all images of ``item``-byte elements: there is little to fill, and compiling costs more.
    """
    f = module.kernel(name)
    first, fill_value = f.load_arg(PTR, 0), f.cast("trunc", f.load_arg(I64, 1), f"i{8 * item}")
    rows, row, width, before, between, after = (f.load_arg(I64, 2 + i) for i in range(6))
    fill_vector = f.splat(fill_value, 16 // item)

    def gap(unit: Reg) -> None:
        is_first = f.compare("eq", unit, 0)
        behind = f.add(f.mul(f.add(unit, -1), row), width)
        start = f.select(is_first, f.op("sub", const(0, I64), before), behind)
        last = f.select(f.compare("eq", unit, rows), f.add(between, after), between)
        _fill(f, f.gep(first, start), f.select(is_first, before, last), fill_value, fill_vector, item)

    f.for_range(f.arg("begin"), f.arg("end"), gap)
    f.ret()


def _fill(f: Function, at: Reg, length: Reg, fill_value: Reg, fill_vector: Reg, item: int) -> None:
    """Fill exactly ``length`` bytes; from 16 on the last vector overlaps the one before it."""
    zero = const(0, I64)
    small = f.compare("ult", length, 16)
    f.if_then(small, lambda: f.for_range(zero, length, lambda i: f.store(fill_value, f.gep(at, i)), item))

    def large() -> None:
        end = f.add(length, -16)
        f.for_range(zero, end, lambda i: f.store(fill_vector, f.gep(at, i)), 16)
        f.store(fill_vector, f.gep(at, end))

    f.if_then(f.compare("uge", length, 16), large)


# ------------------------------------------------------------------------------------------------------- channel planes

# Planar to channels-last conversion (NCHW to NHWC) for few channels, optionally quantized to 8 bits.


@dataclass(frozen=True)
class PlanesSpec:
    """Strides in bytes. With ``affine`` the output is quantized, clamped to [low, high]."""

    channels: int
    columns: int
    plane: int
    in_row: int
    out_row: int
    pixel: int  # of the output
    affine: Affine | None = None
    low: int = 0
    high: int = 255


def emit_planes_to_channels_last(module: Module, name: str, lanes: int, planes: PlanesSpec) -> None:
    """Work units are rows of one image, at least ``lanes`` pixels long. Arguments: first plane, output."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)

    def row(y: Reg) -> None:
        source, target = f.gep(data, f.mul(y, planes.in_row)), f.gep(out, f.mul(y, planes.out_row))

        def pixels(x: Reg) -> None:
            at, to = f.gep(source, f.mul(x, 4)), f.gep(target, f.mul(x, planes.pixel))
            loaded = [f.load(vec(lanes, "float"), at, c * planes.plane) for c in range(planes.channels)]
            offset = 0
            for vector in _interleave_or_quantize(f, planes, loaded, lanes):
                f.store(vector, to, offset)
                offset += 4 * lanes

        last = planes.columns - lanes
        f.for_range(const(0, I64), const(last, I64), pixels, lanes)
        pixels(const(last, I64))  # overlaps the vector before it

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _interleave_or_quantize(f: Function, planes: PlanesSpec, loaded: list[Reg], lanes: int) -> list[Reg]:
    if planes.affine is None:
        return _interleave(f, loaded, lanes)
    packed = None
    for c, x in enumerate(loaded):
        byte = quantize_to_int32(f, x, planes.affine, planes.low, planes.high)
        moved = f.op("shl", byte, 8 * c) if c else byte
        packed = moved if packed is None else f.op("or", packed, moved)
    assert packed is not None
    if planes.pixel == 4:
        return [packed]
    unpacked = f.bitcast(packed, vec(4 * lanes, "i8"))
    mask = [4 * p + c for p in range(lanes) for c in range(planes.channels)]
    return [f.shuffle(unpacked, unpacked, mask)]


def _interleave(f: Function, loaded: list[Reg], lanes: int) -> list[Reg]:
    """Interleave the channels: element t of the result belongs to pixel t // channels."""
    vectors = []
    for start in range(0, lanes * len(loaded), lanes):
        elements = range(start, start + lanes)
        vector = loaded[0]
        first = [t // len(loaded) if t % len(loaded) == 0 else -1 for t in elements]
        vector = f.shuffle(vector, vector, first)
        for c in range(1, len(loaded)):
            mask = [lanes + t // len(loaded) if t % len(loaded) == c else t - start for t in elements]
            vector = f.shuffle(vector, loaded[c], mask)
        vectors.append(vector)
    return vectors


# ------------------------------------------------------------------------------------------------------------ transpose

# Transposing copies of 4-byte elements: square tiles are transposed in registers (see ``vector.transpose``).
#
# Reading rows and writing columns element by element would touch a cache line per element on one side; a tile reads and
# writes full vectors on both.

_TILE = 8  # side of a tile: 8 rows and temporaries fit in the registers of every target


@dataclass(frozen=True)
class TransposeSpec:
    """4-byte elements, contiguous along ``rows`` in the source and along ``columns`` in the target.

    ``outer`` dimensions have ``strides`` of source and target in bytes; ``source`` is the column stride in the source,
    ``target`` the row stride in the target.
    """

    outer: tuple[int, ...]
    strides: tuple[tuple[int, ...], tuple[int, ...]]
    rows: int
    columns: int
    source: int
    target: int

    @property
    def blocks(self) -> int:
        return -(-self.columns // _TILE)


def plan_transpose(shape: Sequence[int], source: Sequence[int], target: Sequence[int]) -> TransposeSpec | None:
    """The transposition that a copy performs, with dimensions in the target's order; None if it is not one."""
    last = len(shape) - 1
    if last < 1 or target[last] != 4 or source[last] == 4 or shape[last] < _TILE:
        return None
    candidates = [d for d in range(last) if source[d] == 4 and shape[d] >= _TILE]
    if not candidates:
        return None
    d = candidates[0]
    rest = [i for i in range(last) if i != d]
    strides = tuple(source[i] for i in rest), tuple(target[i] for i in rest)
    return TransposeSpec(tuple(shape[i] for i in rest), strides, shape[d], shape[last], source[last], target[d])


def emit_transpose(module: Module, name: str, spec: TransposeSpec) -> None:
    """Work units are blocks of columns. Arguments: source, target. The last tile overlaps the one before it."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, 0), f.load_arg(PTR, 1)]

    def unit(index: Reg) -> None:
        block, rest = f.op("urem", index, spec.blocks), f.op("udiv", index, spec.blocks)
        pointers_now = list(pointers)
        for d in range(len(spec.outer) - 1, -1, -1):
            row_source = f.op("urem", rest, spec.outer[d])
            rest = f.op("udiv", rest, spec.outer[d])
            pointers_now = [f.gep(p, f.mul(row_source, s[d])) for p, s in zip(pointers_now, spec.strides, strict=True)]
        start = f.call("llvm.umin.i64", I64, f.mul(block, _TILE), const(spec.columns - _TILE, I64))
        column = f.gep(pointers_now[0], f.mul(start, spec.source)), f.gep(pointers_now[1], f.mul(start, 4))
        _emit_tile_column(f, spec, *column)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile_column(f: Function, spec: TransposeSpec, source: Reg, target: Reg) -> None:
    """Transpose the tiles of a column, top to bottom."""

    def tile(row: Reg) -> None:
        row_source = f.gep(source, f.mul(row, 4))
        rows = [f.load(vec(_TILE, "i32"), row_source, i * spec.source) for i in range(_TILE)]
        row_target = f.gep(target, f.mul(row, spec.target))
        for i, x in enumerate(transpose(f, rows)):
            f.store(x, row_target, i * spec.target)

    def once(row: Reg, _: list[Reg]) -> list[Reg]:
        tile(row)
        return []

    f.loop(spec.rows // _TILE * _TILE, [], once, _TILE)
    if spec.rows % _TILE:
        tile(const(spec.rows - _TILE, I64))
