"""Transposing copies of 4-byte elements: square tiles are transposed in registers (see ``vector.transpose``).

Reading rows and writing columns element by element would touch a cache line per element on one side; a tile reads and
writes full vectors on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import transpose

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
