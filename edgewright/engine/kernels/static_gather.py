"""Rows of elements, picked: at places that lists give for each dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg
from edgewright.engine.kernels.row_gather import copy_row
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class StaticGatherSpec:
    """A result of so many dimensions, whose elements are runs of so many bytes.

    With ``shape`` and ``strides``, in bytes, code is for these alone; without, it reads them, which costs divisions.
    """

    rank: int
    run: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


def offset_table(shape: list[int], strides: list[int], lists: list[Array]) -> Array:
    """What code reads: for each dimension its size, the bytes from one to the next in the result, and where its list
    begins; then the lists, of bytes to each place."""
    starts = 3 * len(shape) + np.cumsum([0, *shape[:-1]])
    heads = np.stack([np.asarray(shape), np.asarray(strides), starts], 1).reshape(-1)
    numbers: Array = np.concatenate([heads, *lists]).astype(np.int64)
    return numbers.view(np.uint8)


def emit_static_gather(module: Module, name: str, picks: StaticGatherSpec) -> None:
    """Units are all dimensions but the last. Slots: data, output, table."""
    f = module.kernel(name)
    data, out, numbers = (f.load_arg(PTR, i) for i in range(3))
    heads = [_load_dim(f, numbers, picks, dim) for dim in range(picks.rank)]

    def unit(index: Reg) -> None:
        source, target = data, out
        for dim in range(picks.rank - 2, -1, -1):
            size, stride, places = heads[dim]
            here, index = (f.op("urem", index, size), f.op("udiv", index, size)) if dim else (index, index)
            source = f.gep(source, f.load(I64, f.gep(places, f.mul(here, 8)), 0, 8))
            target = f.gep(target, f.mul(here, stride) if isinstance(stride, int) else f.op("mul", here, stride))
        size, stride, places = heads[-1]

        def one(_: Reg, now: list[Reg]) -> list[Reg]:
            copy_row(f, picks.run, f.gep(source, f.load(I64, now[0], 0, 8)), now[1])
            return [f.gep(now[0], 8), f.gep(now[1], stride)]

        f.loop(size, [places, target], one)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _load_dim(f: Function, numbers: Reg, picks: StaticGatherSpec, dim: int) -> tuple[Reg | int, Reg | int, Reg]:
    """A dimension's size, the bytes from one to the next in the result, and the list of its places."""
    size, stride, start = (f.load(I64, numbers, 8 * (3 * dim + n), 8) for n in range(3))
    places = f.gep(numbers, f.mul(start, 8))
    return (picks.shape[dim], picks.strides[dim], places) if picks.shape else (size, stride, places)
