"""Softmax along rows that lie densely, of a length that is known when the graph runs."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.math_float32 import exp
from edgewright.engine.kernels.lane_mask import first_lanes_mask, masked_load, masked_store
from edgewright.engine.kernels.row_reduce import lane_max, lane_sum, nan_max

Step = Callable[[Reg, Reg, "Reg | None"], Reg]


class _RowVectors:
    """Vectors of a row, then what is left of it: those have a mask of the lanes that are in it."""

    def __init__(self, f: Function, lanes: int, length: Reg) -> None:
        self.f, self.lanes, self.kind = f, lanes, vec(lanes, "float")
        self.whole = f.mul(f.op("udiv", length, lanes), lanes)
        self.left = f.op("sub", length, self.whole)
        self.mask = first_lanes_mask(f, self.left, lanes)

    def along(self, start: Reg, body: Step) -> Reg:
        """``body(place, total, mask)`` of each, from a first total to the last."""
        total = _loop_or_skip(self.f, self.whole, start, lambda i, now: body(i, now, None), self.lanes)
        return _loop_or_skip(self.f, self.left, total, lambda _, now: body(self.whole, now, self.mask), self.lanes)

    def load(self, row: Reg, at: Reg, kept: Reg | None, other: Reg) -> Reg:
        f, there = self.f, self.f.gep(row, self.f.mul(at, 4))
        if kept is None:
            return f.load(self.kind, there)
        return f.select(kept, masked_load(f, self.kind, there, kept), other)

    def store(self, made: Reg, row: Reg, at: Reg, kept: Reg | None) -> None:
        there = self.f.gep(row, self.f.mul(at, 4))
        self.f.store(made, there) if kept is None else masked_store(self.f, made, there, kept)


def emit_dynamic_softmax(module: Module, name: str, lanes: int) -> None:
    """Units are rows. Slots: data, output, length. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out, length = f.load_arg(PTR, 0), f.load_arg(PTR, 1), f.load_arg(I64, 2)
    v = _RowVectors(f, lanes, length)
    low, zero = const(float("-inf"), v.kind), const(0, v.kind)

    def row(y: Reg) -> None:
        offset = f.op("mul", y, f.mul(length, 4))
        source, target = f.gep(data, offset), f.gep(out, offset)
        largest = lane_max(f, v.along(low, lambda at, now, kept: nan_max(f, now, v.load(source, at, kept, low))))
        moved = f.splat(largest, lanes)

        def power(at: Reg, now: Reg, kept: Reg | None) -> Reg:
            made = exp(f, f.op("fsub", v.load(source, at, kept, low), moved))
            v.store(made, target, at, kept)
            return f.op("fadd", now, made if kept is None else f.select(kept, made, zero))

        total = f.splat(lane_sum(f, v.along(zero, power)), lanes)

        def divide(at: Reg, now: Reg, kept: Reg | None) -> Reg:
            v.store(f.op("fdiv", v.load(target, at, kept, zero), total), target, at, kept)
            return now

        v.along(zero, divide)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _loop_or_skip(f: Function, count: Reg, start: Reg, body: Callable[[Reg, Reg], Reg], step: int) -> Reg:
    """``body(i, value)`` for i from 0 while less than ``count``: perhaps never."""

    def run() -> list[Reg]:
        return f.loop(count, [start], lambda i, now: [body(i, now[0])], step)

    return f.if_then_phi(f.compare("ne", count, 0), [start], run)[0]
