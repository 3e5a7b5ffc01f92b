"""Gather with constant indices: every dimension has a list of byte offsets (slices, flips, repeats, index_select)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg
from edgewright.engine.kernels.row_gather import copy_row
from edgewright.ir.graph import Array


@dataclass(frozen=True)
class StaticGatherSpec:
    """A result of ``rank`` dimensions, whose elements are runs of ``run`` bytes.

    With ``shape`` and ``strides`` (in bytes) the code is specialized; without, it loads them, and divisions are slower.
    """

    rank: int
    run: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


def offset_table(shape: list[int], strides: list[int], lists: list[Array]) -> Array:
    """The kernel's table: per dimension its size, output stride and start of its list; then the lists of offsets."""
    starts = 3 * len(shape) + np.cumsum([0, *shape[:-1]])
    heads = np.stack([np.asarray(shape), np.asarray(strides), starts], 1).reshape(-1)
    numbers: Array = np.concatenate([heads, *lists]).astype(np.int64)
    return numbers.view(np.uint8)


def emit_static_gather(module: Module, name: str, spec: StaticGatherSpec) -> None:
    """Work units are all dimensions but the last. Arguments: data, output, table."""
    f = module.kernel(name)
    data, out, numbers = (f.load_arg(PTR, i) for i in range(3))
    heads = [_load_dim(f, numbers, spec, dim) for dim in range(spec.rank)]

    def unit(index: Reg) -> None:
        source, target = data, out
        for dim in range(spec.rank - 2, -1, -1):
            size, stride, offsets = heads[dim]
            position, index = (f.op("urem", index, size), f.op("udiv", index, size)) if dim else (index, index)
            source = f.gep(source, f.load(I64, f.gep(offsets, f.mul(position, 8)), 0, 8))
            target = f.gep(
                target, f.mul(position, stride) if isinstance(stride, int) else f.op("mul", position, stride)
            )
        size, stride, offsets = heads[-1]

        def copy_next(_: Reg, now: list[Reg]) -> list[Reg]:
            copy_row(f, spec.run, f.gep(source, f.load(I64, now[0], 0, 8)), now[1])
            return [f.gep(now[0], 8), f.gep(now[1], stride)]

        f.loop(size, [offsets, target], copy_next)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _load_dim(f: Function, numbers: Reg, spec: StaticGatherSpec, dim: int) -> tuple[Reg | int, Reg | int, Reg]:
    """A dimension's size, its output stride, and the address of its offset list."""
    size, stride, start = (f.load(I64, numbers, 8 * (3 * dim + n), 8) for n in range(3))
    offsets = f.gep(numbers, f.mul(start, 8))
    return (spec.shape[dim], spec.strides[dim], offsets) if spec.shape else (size, stride, offsets)
