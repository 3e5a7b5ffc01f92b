"""Rows of elements, picked: at places that lists give for each dimension, or that are known when the graph runs."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, number
from edgewright.engine.kernels.places import copy_row


@dataclass(frozen=True)
class Picks:
    """A result of ``shape``, whose elements are runs of ``run`` bytes; ``strides`` are the result's, in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    run: int

    @property
    def units(self) -> int:
        total = 1
        for n in self.shape[:-1]:
            total *= n
        return total


def emit_picks(module: Module, name: str, picks: Picks) -> None:
    """Units are all dimensions but the last. Slots: data, output, then for each dimension the bytes to each place."""
    f = module.kernel(name)
    data, out, *lists = (f.slot(PTR, i) for i in range(2 + len(picks.shape)))

    def unit(index: Reg) -> None:
        source, target = data, out
        for dim in range(len(picks.shape) - 2, -1, -1):
            here = f.op("urem", index, picks.shape[dim]) if dim else index
            index = f.op("udiv", index, picks.shape[dim]) if dim else index
            source = f.at(source, _listed(f, lists[dim], here))
            target = f.at(target, f.mul(here, picks.strides[dim]))

        def one(i: Reg, _: list[Reg]) -> list[Reg]:
            copy_row(f, picks.run, f.at(source, _listed(f, lists[-1], i)), f.at(target, f.mul(i, picks.strides[-1])))
            return []

        f.repeat(picks.shape[-1], [], one)

    f.span(f.arg("begin"), f.arg("end"), unit)
    f.give()


def _listed(f: Function, places: Reg, index: Reg) -> Reg:
    return f.load(I64, f.at(places, f.mul(index, 8)), 0, 8)


@dataclass(frozen=True)
class Lists:
    """``batch`` times, ``count`` rows of ``run`` bytes at places below ``size``, which 32 bits each say.

    Strides are in bytes: of the tensor that is picked from or put into, of the rows, and of the places.
    """

    batch: int
    size: int
    count: int
    run: int
    whole: tuple[int, int]
    rows: tuple[int, int]
    places: tuple[int, int]


def emit_take(module: Module, name: str, lists: Lists) -> None:
    """Units are rows. Slots: the tensor, places, the rows that are made."""
    f = module.kernel(name)
    data, listed, out = (f.slot(PTR, i) for i in range(3))

    def row(unit: Reg) -> None:
        batch, at = f.op("udiv", unit, lists.count), f.op("urem", unit, lists.count)
        source = _at(f, data, lists.whole, batch, _place(f, lists, listed, batch, at))
        copy_row(f, lists.run, source, _at(f, out, lists.rows, batch, at))

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()


def emit_lay(module: Module, name: str, lists: Lists) -> None:
    """Units are the batch: of two rows at one place the later one stays. Slots: rows, places, the tensor."""
    f = module.kernel(name)
    data, listed, out = (f.slot(PTR, i) for i in range(3))

    def one(batch: Reg) -> None:
        def row(at: Reg, _: list[Reg]) -> list[Reg]:
            target = _at(f, out, lists.whole, batch, _place(f, lists, listed, batch, at))
            copy_row(f, lists.run, _at(f, data, lists.rows, batch, at), target)
            return []

        f.repeat(lists.count, [], row)

    f.span(f.arg("begin"), f.arg("end"), one)
    f.give()


def _at(f: Function, base: Reg, strides: tuple[int, int], batch: Reg, row: Reg) -> Reg:
    return f.at(f.at(base, f.mul(batch, strides[0])), f.mul(row, strides[1]))


def _place(f: Function, lists: Lists, listed: Reg, batch: Reg, at: Reg) -> Reg:
    """One below 0 counts from the end. What is not in the tensor is taken for the nearest that is."""
    given = f.cast("sext", f.load("i32", _at(f, listed, lists.places, batch, at)), I64)
    last, zero = number(lists.size - 1, I64), number(0, I64)
    wrapped = f.select(f.compare("slt", given, 0), f.add(given, lists.size), given)
    return f.call("llvm.smin.i64", I64, f.call("llvm.smax.i64", I64, wrapped, zero), last)
