"""Softmax along rows that lie densely, of a length that is known when the graph runs."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, number, vec
from edgewright.engine.functions import exp
from edgewright.engine.kernels.along import larger, largest_of, sum_of
from edgewright.engine.kernels.masks import first_lanes, load_first, store_first

Step = Callable[[Reg, Reg, "Reg | None"], Reg]


def emit_open_softmax(module: Module, name: str, lanes: int) -> None:
    """Units are rows. Slots: data, output, length. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out, length = f.slot(PTR, 0), f.slot(PTR, 1), f.slot(I64, 2)
    kind, whole = vec(lanes, "float"), f.mul(f.op("udiv", length, lanes), lanes)
    left = f.op("sub", length, whole)
    mask = first_lanes(f, left, lanes)
    low, zero = number(float("-inf"), kind), number(0, kind)

    def along(start: Reg, body: Step) -> Reg:
        """Vectors, then the rest of a row."""
        total = _sum(f, whole, start, lambda i, now: body(i, now, None), lanes)
        return _sum(f, left, total, lambda _, now: body(whole, now, mask), lanes)

    def row(y: Reg) -> None:
        offset = f.op("mul", y, f.mul(length, 4))
        source, target = f.at(data, offset), f.at(out, offset)

        def load(place: Reg, at: Reg, kept: Reg | None, other: Reg) -> Reg:
            there = f.at(place, f.mul(at, 4))
            return f.load(kind, there) if kept is None else f.select(kept, load_first(f, kind, there, kept), other)

        largest = largest_of(f, along(low, lambda at, now, kept: larger(f, now, load(source, at, kept, low))))
        moved = f.splat(largest, lanes)

        def power(at: Reg, now: Reg, kept: Reg | None) -> Reg:
            made = exp(f, f.op("fsub", load(source, at, kept, low), moved))
            there = f.at(target, f.mul(at, 4))
            if kept is None:
                f.store(made, there)
            else:
                store_first(f, made, there, kept)
                made = f.select(kept, made, zero)
            return f.op("fadd", now, made)

        total = f.splat(sum_of(f, along(zero, power)), lanes)

        def divide(at: Reg, now: Reg, kept: Reg | None) -> Reg:
            made, there = f.op("fdiv", load(target, at, kept, zero), total), f.at(target, f.mul(at, 4))
            f.store(made, there) if kept is None else store_first(f, made, there, kept)
            return now

        along(zero, divide)

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()


def _sum(f: Function, count: Reg, start: Reg, body: Callable[[Reg, Reg], Reg], step: int) -> Reg:
    """``body(i, value)`` for i from 0 while less than ``count``: perhaps never."""

    def run() -> list[Reg]:
        return f.repeat(count, [start], lambda i, now: [body(i, now[0])], step)

    return f.maybe(f.compare("ne", count, 0), [start], run)[0]
