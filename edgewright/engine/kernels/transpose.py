"""Copies in which rows become columns: squares of elements are turned in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import transpose

_TILE = 8  # elements of a square's side: 8 rows and what turns them fit in any machine's registers


@dataclass(frozen=True)
class TransposeSpec:
    """Elements of four bytes, side by side along ``rows`` in the source and along ``columns`` in the target.

    ``outer`` dimensions have ``strides`` in bytes, of source and target; ``source`` is from column to column there,
    ``target`` from row to row.
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
    """A copy of dimensions as the target has them, if it is one that turns squares."""
    last = len(shape) - 1
    if last < 1 or target[last] != 4 or source[last] == 4 or shape[last] < _TILE:
        return None
    found = [d for d in range(last) if source[d] == 4 and shape[d] >= _TILE]
    if not found:
        return None
    d = found[0]
    rest = [i for i in range(last) if i != d]
    strides = tuple(source[i] for i in rest), tuple(target[i] for i in rest)
    return TransposeSpec(tuple(shape[i] for i in rest), strides, shape[d], shape[last], source[last], target[d])


def emit_transpose(module: Module, name: str, turn: TransposeSpec) -> None:
    """Units are blocks of columns. Slots: source, target. The last square lies over the one before it."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, 0), f.load_arg(PTR, 1)]

    def unit(index: Reg) -> None:
        block, rest = f.op("urem", index, turn.blocks), f.op("udiv", index, turn.blocks)
        places = list(pointers)
        for d in range(len(turn.outer) - 1, -1, -1):
            here = f.op("urem", rest, turn.outer[d])
            rest = f.op("udiv", rest, turn.outer[d])
            places = [f.gep(p, f.mul(here, s[d])) for p, s in zip(places, turn.strides, strict=True)]
        start = f.call("llvm.umin.i64", I64, f.mul(block, _TILE), const(turn.columns - _TILE, I64))
        column = f.gep(places[0], f.mul(start, turn.source)), f.gep(places[1], f.mul(start, 4))
        _emit_tile_column(f, turn, *column)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _emit_tile_column(f: Function, turn: TransposeSpec, source: Reg, target: Reg) -> None:
    """Squares one below the other."""

    def square(row: Reg) -> None:
        here = f.gep(source, f.mul(row, 4))
        rows = [f.load(vec(_TILE, "i32"), here, i * turn.source) for i in range(_TILE)]
        there = f.gep(target, f.mul(row, turn.target))
        for i, x in enumerate(transpose(f, rows)):
            f.store(x, there, i * turn.target)

    def once(row: Reg, _: list[Reg]) -> list[Reg]:
        square(row)
        return []

    f.loop(turn.rows // _TILE * _TILE, [], once, _TILE)
    if turn.rows % _TILE:
        square(const(turn.rows - _TILE, I64))
