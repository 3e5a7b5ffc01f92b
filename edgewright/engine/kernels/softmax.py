"""Softmax along rows that lie densely."""

from __future__ import annotations

from edgewright.engine.codegen import PTR, Module, Reg, count, number
from edgewright.engine.functions import exp
from edgewright.engine.kernels.along import each, fold, larger, largest_of, load, store, sum_of


def emit_softmax(module: Module, name: str, lanes: int, length: int) -> None:
    """Units are rows. Slots: data, output. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out = f.slot(PTR, 0), f.slot(PTR, 1)

    def row(y: Reg) -> None:
        offset = f.mul(y, 4 * length)
        source, target = f.at(data, offset), f.at(out, offset)
        lowest = number(float("-inf"), "float")
        largest = fold(f, lanes, length, lowest, lambda at, now: larger(f, now, load(f, source, at, now)), largest_of)

        def power(at: Reg, now: Reg) -> Reg:
            x = f.op("fsub", load(f, source, at, now), f.splat(largest, count(now.type)))
            made = exp(f, x)
            store(f, made, target, at)
            return f.op("fadd", now, made)

        total = fold(f, lanes, length, number(0, "float"), power, sum_of)

        def divide(at: Reg, like: Reg) -> None:
            store(f, f.op("fdiv", load(f, target, at, like), f.splat(total, count(like.type))), target, at)

        each(f, lanes, length, divide)

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()
