"""Softmax over contiguous rows of static or dynamic length."""

from __future__ import annotations

from collections.abc import Callable

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.math_float32 import exp, exp2_nonpositive
from edgewright.engine.kernels.lane_mask import first_lanes_mask, masked_load, masked_store
from edgewright.engine.kernels.row_reduce import lane_max, lane_sum, load, nan_max, reduce_row, store

LOG2E = 1.4426950408889634


def emit_softmax(module: Module, name: str, lanes: int, length: int) -> None:
    """Work units are rows. Arguments: data, output. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    lanes = next(n for n in (lanes, 8, 4, 1) if n <= min(lanes, length))

    def row(y: Reg) -> None:
        offset = f.mul(y, 4 * length)
        _row(f, lanes, length, f.gep(data, offset), f.gep(out, offset))

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _row(f: Function, lanes: int, length: int, source: Reg, target: Reg) -> None:
    covered, kind = length // lanes * lanes, vec(lanes, "float")
    rest, last = length - covered, const(length - lanes, I64)  # the last vector overlaps the one before it
    lowest = const(float("-inf"), "float")
    top = reduce_row(f, lanes, covered, lowest, lambda at, now: nan_max(f, now, load(f, source, at, now)), lane_max)
    if rest:
        top = nan_max(f, top, lane_max(f, f.load(kind, source, 4 * (length - lanes))))

    def power(at: Reg) -> Reg:
        less = f.op("fsub", f.load(kind, f.gep(source, f.mul(at, 4))), f.splat(top, lanes))
        result = exp2_nonpositive(f, f.op("fmul", less, const(LOG2E, kind)))
        store(f, result, target, at)
        return result

    total = reduce_row(f, lanes, covered, const(0, "float"), lambda at, now: f.op("fadd", now, power(at)), lane_sum)
    if rest:
        total = f.op("fadd", total, lane_sum(f, _keep_last(f, power(last), rest)))
    inverse = f.splat(f.op("fdiv", const(1, "float"), total), lanes)

    def share(at: Reg, now: Reg) -> Reg:
        store(f, f.op("fmul", load(f, target, at, now), inverse), target, at)
        return now

    if rest:  # before the loop: the overlapping elements must not be scaled twice
        x = f.op("fmul", f.load(kind, target, 4 * (length - lanes)), inverse)
        f.store_first(f.shuffle(x, x, [*range(lanes - rest, lanes), *range(lanes - rest)]), rest, target, 4 * covered)
    reduce_row(f, lanes, covered, const(0, "float"), share, lambda f, x: const(0, "float"))


def _keep_last(f: Function, x: Reg, rest: int) -> Reg:
    """Zero all but the last ``rest`` lanes."""
    lanes = lane_count(x.type)
    listed = ", ".join(f"i1 {int(lane >= lanes - rest)}" for lane in range(lanes))
    return f.select(Reg(f"<{listed}>", vec(lanes, "i1")), x, const(0, x.type))


Step = Callable[[Reg, Reg, "Reg | None"], Reg]


class _RowVectors:
    """Iterates over the full vectors of a row, then over the remainder with a lane mask."""

    def __init__(self, f: Function, lanes: int, length: Reg) -> None:
        self.f, self.lanes, self.kind = f, lanes, vec(lanes, "float")
        self.full = f.mul(f.op("udiv", length, lanes), lanes)
        self.remainder = f.op("sub", length, self.full)
        self.mask = first_lanes_mask(f, self.remainder, lanes)

    def reduce(self, start: Reg, body: Step) -> Reg:
        """``body(index, total, mask)`` for each vector, carrying the total."""
        total = _loop_or_skip(self.f, self.full, start, lambda i, now: body(i, now, None), self.lanes)
        return _loop_or_skip(self.f, self.remainder, total, lambda _, now: body(self.full, now, self.mask), self.lanes)

    def load(self, row: Reg, at: Reg, mask: Reg | None, other: Reg) -> Reg:
        f, address = self.f, self.f.gep(row, self.f.mul(at, 4))
        if mask is None:
            return f.load(self.kind, address)
        return f.select(mask, masked_load(f, self.kind, address, mask), other)

    def store(self, result: Reg, row: Reg, at: Reg, mask: Reg | None) -> None:
        address = self.f.gep(row, self.f.mul(at, 4))
        self.f.store(result, address) if mask is None else masked_store(self.f, result, address, mask)


def emit_dynamic_softmax(module: Module, name: str, lanes: int) -> None:
    """Work units are rows. Arguments: data, output, length. Results are within 1e-6 of the largest."""
    f = module.kernel(name)
    data, out, length = f.load_arg(PTR, 0), f.load_arg(PTR, 1), f.load_arg(I64, 2)
    v = _RowVectors(f, lanes, length)
    low, zero = const(float("-inf"), v.kind), const(0, v.kind)

    def row(y: Reg) -> None:
        offset = f.op("mul", y, f.mul(length, 4))
        source, target = f.gep(data, offset), f.gep(out, offset)
        largest = lane_max(f, v.reduce(low, lambda at, now, mask: nan_max(f, now, v.load(source, at, mask, low))))
        moved = f.splat(largest, lanes)

        def power(at: Reg, now: Reg, mask: Reg | None) -> Reg:
            result = exp(f, f.op("fsub", v.load(source, at, mask, low), moved))
            v.store(result, target, at, mask)
            return f.op("fadd", now, result if mask is None else f.select(mask, result, zero))

        total = f.splat(lane_sum(f, v.reduce(zero, power)), lanes)

        def divide(at: Reg, now: Reg, mask: Reg | None) -> Reg:
            v.store(f.op("fdiv", v.load(target, at, mask, zero), total), target, at, mask)
            return now

        v.reduce(zero, divide)

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _loop_or_skip(f: Function, count: Reg, start: Reg, body: Callable[[Reg, Reg], Reg], step: int) -> Reg:
    """``body(i, value)`` for i in [0, count), which may be empty."""

    def run() -> list[Reg]:
        return f.loop(count, [start], lambda i, now: [body(i, now[0])], step)

    return f.if_then_phi(f.compare("ne", count, 0), [start], run)[0]
