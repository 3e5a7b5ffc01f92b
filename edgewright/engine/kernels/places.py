"""Reading and writing rows at places that are known when the graph runs.

A place below 0 counts from the end. Whatever it says, nothing outside the tensor is touched: a place that is not in it
is taken for the nearest that is. Who hands over places says what is wrong with them before.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, number, vec
from edgewright.engine.kernels.packing import pieces


@dataclass(frozen=True)
class Places:
    """``outer`` times, ``count`` rows of ``inner`` bytes out of ``size``, at places of ``item`` bytes each."""

    outer: int
    size: int
    count: int
    inner: int
    item: int

    @property
    def code(self) -> tuple[int, int]:
        """What code depends on; the rest it is given."""
        return self.inner, self.item


def emit_gather(module: Module, name: str, inner: int, item: int) -> None:
    """Units are rows of the result. Slots: data, places, output, count, size."""
    f = module.kernel(name)
    data, listed, out = (f.slot(PTR, i) for i in range(3))
    count, size = f.slot(I64, 3), f.slot(I64, 4)

    def row(unit: Reg) -> None:
        outer, at = f.op("udiv", unit, count), f.op("urem", unit, count)
        source = f.op("add", f.op("mul", outer, size), _place(f, item, size, listed, at))
        copy_row(f, inner, f.at(data, f.mul(source, inner)), f.at(out, f.mul(unit, inner)))

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()


def emit_put(module: Module, name: str, inner: int, item: int) -> None:
    """Units are the outer dimension: of two rows at one place the later one stays.

    Slots: rows, places, output, count, size.
    """
    f = module.kernel(name)
    data, listed, out = (f.slot(PTR, i) for i in range(3))
    count, size = f.slot(I64, 3), f.slot(I64, 4)

    def one(outer: Reg) -> None:
        def row(at: Reg, _: list[Reg]) -> list[Reg]:
            source = f.op("add", f.op("mul", outer, count), at)
            target = f.op("add", f.op("mul", outer, size), _place(f, item, size, listed, at))
            copy_row(f, inner, f.at(data, f.mul(source, inner)), f.at(out, f.mul(target, inner)))
            return []

        f.repeat(count, [], row)

    f.span(f.arg("begin"), f.arg("end"), one)
    f.give()


def _place(f: Function, item: int, size: Reg, listed: Reg, at: Reg) -> Reg:
    given = f.cast("sext", f.load(f"i{8 * item}", f.at(listed, f.mul(at, item))), I64)
    wrapped = f.select(f.compare("slt", given, 0), f.op("add", given, size), given)
    return f.call("llvm.smin.i64", I64, f.call("llvm.smax.i64", I64, wrapped, number(0, I64)), f.add(size, -1))


def copy_row(f: Function, size: int, source: Reg, target: Reg) -> None:
    """So many bytes, and no others."""
    whole = size // 64 * 64

    def once(i: Reg, _: list[Reg]) -> list[Reg]:
        f.store(f.load(vec(64, "i8"), f.at(source, i)), f.at(target, i))
        return []

    if whole:
        f.repeat(whole, [], once, 64)
    for start, length in pieces(size - whole, 32):
        f.store(f.load(vec(length, "i8"), source, whole + start), target, whole + start)
