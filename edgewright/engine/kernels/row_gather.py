"""Reading and writing rows at places that are known when the graph runs.

A place below 0 counts from the end. Whatever it says, nothing outside the tensor is touched: a place that is not in it
is taken for the nearest that is, or left out. Who hands over places says what is wrong with them before, or has them
looked at here.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.pack_operand import power_of_two_chunks

Strides = tuple[int, int]


@dataclass(frozen=True)
class RowGatherSpec:
    """``outer`` times, ``count`` rows of ``run`` bytes out of ``size``, at places of ``item`` bytes each.

    Steps are in bytes, along the outer dimension and from one to the next: of the tensor that is read or written, of
    the rows, and of the places.
    """

    outer: int
    size: int
    count: int
    run: int
    item: int
    whole: Strides
    rows: Strides
    places: Strides
    skips: bool = False  # nothing is written at places below 0 or beyond the last

    @property
    def code(self) -> tuple[int, ...]:
        """What code depends on; the rest it is given."""
        return (self.run, self.item, True) if self.skips else (self.run, self.item)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What it is given, after the addresses."""
        return self.count, self.size, *self.whole, *self.rows, *self.places


class _RuntimeParams:
    """Where things are, by numbers that code is given."""

    def __init__(self, f: Function, item: int) -> None:
        self.f, self.item = f, item
        self.count, self.size, *steps = (f.load_arg(I64, i) for i in range(3, 11))
        self.whole, self.rows, self.places = steps[:2], steps[2:4], steps[4:]

    def at(self, base: Reg, steps: list[Reg], outer: Reg, row: Reg) -> Reg:
        f = self.f
        return f.gep(base, f.op("add", f.op("mul", outer, steps[0]), f.op("mul", row, steps[1])))

    def given(self, listed: Reg, outer: Reg, row: Reg) -> Reg:
        f = self.f
        return f.cast("sext", f.load(f"i{8 * self.item}", self.at(listed, self.places, outer, row)), I64)

    def place(self, listed: Reg, outer: Reg, row: Reg) -> Reg:
        f, given = self.f, self.given(listed, outer, row)
        wrapped = f.select(f.compare("slt", given, 0), f.op("add", given, self.size), given)
        least = f.call("llvm.smax.i64", I64, wrapped, const(0, I64))
        return f.call("llvm.smin.i64", I64, least, f.add(self.size, -1))


def emit_row_gather(module: Module, name: str, run: int, item: int) -> None:
    """Units are rows of the result. Slots: the tensor, places, rows, then ``Places.numbers``."""
    f = module.kernel(name)
    data, listed, out = (f.load_arg(PTR, i) for i in range(3))
    n = _RuntimeParams(f, item)

    def row(unit: Reg) -> None:
        outer, at = f.op("udiv", unit, n.count), f.op("urem", unit, n.count)
        source = n.at(data, n.whole, outer, n.place(listed, outer, at))
        copy_row(f, run, source, n.at(out, n.rows, outer, at))

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def emit_row_scatter(module: Module, name: str, run: int, item: int, skips: bool = False) -> None:
    """Units are the outer dimension: of two rows at one place the later one stays.

    Slots: rows, places, the tensor, then ``Places.numbers``.
    """
    f = module.kernel(name)
    data, listed, out = (f.load_arg(PTR, i) for i in range(3))
    n = _RuntimeParams(f, item)

    def one(outer: Reg) -> None:
        def put(at: Reg, place: Reg) -> None:
            copy_row(f, run, n.at(data, n.rows, outer, at), n.at(out, n.whole, outer, place))

        def row(at: Reg, _: list[Reg]) -> list[Reg]:
            if skips:
                place = n.given(listed, outer, at)
                f.if_then(f.compare("ult", place, n.size), lambda: put(at, place))
            else:
                put(at, n.place(listed, outer, at))
            return []

        f.loop(n.count, [], row)

    f.for_range(f.arg("begin"), f.arg("end"), one)
    f.ret()


def emit_index_check(module: Module, name: str, item: int) -> None:
    """Units are lines of places. One that is not there is written down, after the number of who looks for it.

    Slots: places, where to write; how many are in a line, bytes to the next line and place, the least, how many there
    are from it on, the number.
    """
    f = module.kernel(name)
    listed, found = (f.load_arg(PTR, i) for i in range(2))
    count, line, step, least, size, who = (f.load_arg(I64, i) for i in range(2, 8))

    def one(outer: Reg) -> None:
        start = f.gep(listed, f.op("mul", outer, line))

        def look(at: Reg, wrong: list[Reg]) -> list[Reg]:
            place = f.cast("sext", f.load(f"i{8 * item}", f.gep(start, f.op("mul", at, step))), I64)
            there = f.compare("ult", f.op("sub", place, least), size)
            return [f.select(there, wrong[0], place)]

        (wrong,) = f.loop(count, [const(0, I64)], look)  # 0 is a place that every tensor has

        def write() -> None:
            f.store(wrong, found, 8)
            f.store(who, found)

        f.if_then(f.compare("ne", wrong, 0), write)

    f.for_range(f.arg("begin"), f.arg("end"), one)
    f.ret()


def copy_row(f: Function, size: int, source: Reg, target: Reg) -> None:
    """So many bytes, and no others."""
    whole = size // 64 * 64

    def once(i: Reg, _: list[Reg]) -> list[Reg]:
        f.store(f.load(vec(64, "i8"), f.gep(source, i)), f.gep(target, i))
        return []

    if whole:
        f.loop(whole, [], once, 64)
    for start, length in power_of_two_chunks(size - whole, 32):
        f.store(f.load(vec(length, "i8"), source, whole + start), target, whole + start)
