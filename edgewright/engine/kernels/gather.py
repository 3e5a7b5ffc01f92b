"""Gather and scatter with run-time indices; gather with constant ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.matmul import power_of_two_chunks
from edgewright.ir.graph import Array

# ----------------------------------------------------------------------------------------------------------- row gather

# Row gather and row scatter with run-time indices.
#
# Negative indices count from the end. No index causes an access outside the tensor: out-of-range indices are clamped or
# skipped. Callers that must report them validate indices on the host, or with ``emit_index_check``.

Strides = tuple[int, int]


@dataclass(frozen=True)
class RowGatherSpec:
    """``count`` rows of ``run`` bytes out of ``size``, ``outer`` times; indices are integers of ``item`` bytes.

    Strides are (outer, inner) in bytes: of the indexed tensor (``table``), the rows, and the indices.
    """

    outer: int
    size: int
    count: int
    run: int
    item: int
    table: Strides
    rows: Strides
    index_strides: Strides
    skip_outside: bool = False  # skip negative and out-of-range indices

    @property
    def code(self) -> tuple[int, ...]:
        """What the code depends on; everything else is a kernel argument."""
        return (self.run, self.item, True) if self.skip_outside else (self.run, self.item)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The kernel's arguments after the addresses."""
        return self.count, self.size, *self.table, *self.rows, *self.index_strides


class _RuntimeParams:
    """Addresses computed from the sizes and strides in the kernel's arguments."""

    def __init__(self, f: Function, item: int) -> None:
        self.f, self.item = f, item
        self.count, self.size, *steps = (f.load_arg(I64, i) for i in range(3, 11))
        self.table, self.rows, self.index_strides = steps[:2], steps[2:4], steps[4:]

    def at(self, base: Reg, steps: list[Reg], outer: Reg, row: Reg) -> Reg:
        f = self.f
        return f.gep(base, f.op("add", f.op("mul", outer, steps[0]), f.op("mul", row, steps[1])))

    def load_index(self, indices: Reg, outer: Reg, row: Reg) -> Reg:
        f = self.f
        return f.cast("sext", f.load(f"i{8 * self.item}", self.at(indices, self.index_strides, outer, row)), I64)

    def clamped_index(self, indices: Reg, outer: Reg, row: Reg) -> Reg:
        f, load_index = self.f, self.load_index(indices, outer, row)
        wrapped = f.select(f.compare("slt", load_index, 0), f.op("add", load_index, self.size), load_index)
        non_negative = f.call("llvm.smax.i64", I64, wrapped, const(0, I64))
        return f.call("llvm.smin.i64", I64, non_negative, f.add(self.size, -1))


def emit_row_gather(module: Module, name: str, run: int, item: int) -> None:
    """Work units are rows of the result. Arguments: tensor, indices, rows, then ``RowGatherSpec.numbers``."""
    f = module.kernel(name)
    data, indices, out = (f.load_arg(PTR, i) for i in range(3))
    n = _RuntimeParams(f, item)

    def row(unit: Reg) -> None:
        outer, at = f.op("udiv", unit, n.count), f.op("urem", unit, n.count)
        source = n.at(data, n.table, outer, n.clamped_index(indices, outer, at))
        copy_row(f, run, source, n.at(out, n.rows, outer, at))

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def emit_row_scatter(module: Module, name: str, run: int, item: int, skip_outside: bool = False) -> None:
    """Work units are the outer dimension, so that with duplicate indices the last row wins.

    Arguments: rows, indices, tensor, then ``RowGatherSpec.numbers``.
    """
    f = module.kernel(name)
    data, indices, out = (f.load_arg(PTR, i) for i in range(3))
    n = _RuntimeParams(f, item)

    def scatter_outer(outer: Reg) -> None:
        def copy(at: Reg, index: Reg) -> None:
            copy_row(f, run, n.at(data, n.rows, outer, at), n.at(out, n.table, outer, index))

        def row(at: Reg, _: list[Reg]) -> list[Reg]:
            if skip_outside:
                index = n.load_index(indices, outer, at)
                f.if_then(f.compare("ult", index, n.size), lambda: copy(at, index))
            else:
                copy(at, n.clamped_index(indices, outer, at))
            return []

        f.loop(n.count, [], row)

    f.for_range(f.arg("begin"), f.arg("end"), scatter_outer)
    f.ret()


def emit_index_check(module: Module, name: str, item: int) -> None:
    """Work units are rows of indices. Reports an out-of-range index as (identifier of the check, index).

    Arguments: indices, report; indices per row, strides of rows and indices, the smallest valid index, the number of
    valid indices, the identifier.
    """
    f = module.kernel(name)
    indices, report = (f.load_arg(PTR, i) for i in range(2))
    count, line, step, lowest, size, check_id = (f.load_arg(I64, i) for i in range(2, 8))

    def check_outer(outer: Reg) -> None:
        start = f.gep(indices, f.op("mul", outer, line))

        def check(at: Reg, bad_index: list[Reg]) -> list[Reg]:
            index = f.cast("sext", f.load(f"i{8 * item}", f.gep(start, f.op("mul", at, step))), I64)
            valid = f.compare("ult", f.op("sub", index, lowest), size)
            return [f.select(valid, bad_index[0], index)]

        (bad_index,) = f.loop(count, [const(0, I64)], check)  # index 0 is always valid

        def write() -> None:
            f.store(bad_index, report, 8)
            f.store(check_id, report)

        f.if_then(f.compare("ne", bad_index, 0), write)

    f.for_range(f.arg("begin"), f.arg("end"), check_outer)
    f.ret()


def copy_row(f: Function, size: int, source: Reg, target: Reg) -> None:
    """Copy exactly ``size`` bytes."""
    vector_bytes = size // 64 * 64

    def once(i: Reg, _: list[Reg]) -> list[Reg]:
        f.store(f.load(vec(64, "i8"), f.gep(source, i)), f.gep(target, i))
        return []

    if vector_bytes:
        f.loop(vector_bytes, [], once, 64)
    for start, length in power_of_two_chunks(size - vector_bytes, 32):
        f.store(f.load(vec(length, "i8"), source, vector_bytes + start), target, vector_bytes + start)


# -------------------------------------------------------------------------------------------------------- static gather

# Gather with constant indices: every dimension has a list of byte offsets (slices, flips, repeats, index_select).


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
