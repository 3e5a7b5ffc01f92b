"""A pointwise convolution, a depthwise one and a pointwise one, row by row: what is between never leaves the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen import I64, PTR, Function, Module, Reg, count, number, vec


@dataclass(frozen=True)
class Chain:
    """Sizes of the depthwise convolution's input, and steps in bytes. Rows of it are kept in a ring."""

    high: int  # rows of its input
    wide: int
    kernel: int
    stride: int
    top: int
    left: int
    right: int
    pixel: int  # of its input
    in_row: int  # of the chain's input
    out_row: int
    second_row: int
    middle: int  # bytes of one of its output rows

    @property
    def ring_row(self) -> int:
        return (self.left + self.wide + self.right) * self.pixel

    @property
    def scratch(self) -> int:
        return self.kernel * self.ring_row + self.middle + 256


def emit_chain(module: Module, name: str, lanes: int, chain: Chain, steps: Sequence[Function]) -> None:
    """Units are output rows. ``steps`` are the three parts, each for one row.

    Slots: data, output, second operand, the weights of the three, a row of zeros.
    """
    expand, across, project = steps
    f = module.kernel(name)
    data, out, second, first, taps, last, zeros = (f.slot(PTR, i) for i in range(7))
    ring = f.arg("scratch")
    middle = f.at(ring, chain.kernel * chain.ring_row)
    _clear_sides(f, lanes, chain, ring)

    def slot(row: Reg) -> Reg:
        """Where a row is kept, its left border included."""
        return f.at(ring, f.mul(f.op("urem", row, chain.kernel), chain.ring_row))

    def rows(y: Reg, now: list[Reg]) -> list[Reg]:
        line = f.op("add", f.arg("begin"), y)
        start = f.add(f.mul(line, chain.stride), -chain.top)
        end = f.call("llvm.smin.i64", I64, f.add(start, chain.kernel), number(chain.high, I64))
        fresh = f.call("llvm.smax.i64", I64, f.call("llvm.smax.i64", I64, start, now[0]), number(0, I64))

        def one(row: Reg) -> None:
            target = f.at(slot(row), chain.left * chain.pixel)
            f.run(expand, f.at(data, f.mul(row, chain.in_row)), first, target, target)

        f.span(fresh, end, one)
        kept = []
        for dy in range(chain.kernel):
            row = f.add(start, dy)
            inside = f.compare("ult", row, chain.high)  # negative ones are large
            bounded = f.select(inside, row, number(0, I64))
            kept.append(f.select(inside, slot(bounded), zeros))
        f.run(across, *kept, middle, taps, middle)
        target, beside = f.at(out, f.mul(line, chain.out_row)), f.at(second, f.mul(line, chain.second_row))
        f.run(project, middle, last, target, beside)
        return [end]

    def all_rows() -> None:
        f.repeat(f.op("sub", f.arg("end"), f.arg("begin")), [number(0, I64)], rows)

    f.when(f.compare("slt", f.arg("begin"), f.arg("end")), all_rows)
    f.give()


def _fill(f: Function, at: Reg, length: int, zero: Reg) -> None:
    size = 4 * count(zero.type)
    f.span(number(0, I64), number(length, I64), lambda i: f.store(zero, f.at(at, i)), size)


def _clear_sides(f: Function, lanes: int, chain: Chain, ring: Reg) -> None:
    """Zeros left and right of every row of the ring. Pixels are whole vectors."""
    zero = number(0, vec(lanes, "float"))
    ranges = [(0, chain.left * chain.pixel), ((chain.left + chain.wide) * chain.pixel, chain.right * chain.pixel)]
    for row in range(chain.kernel):
        for start, length in ranges:
            if length:
                _fill(f, f.at(ring, row * chain.ring_row + start), length, zero)
