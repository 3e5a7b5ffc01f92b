"""Fused pointwise, depthwise and pointwise convolutions (an inverted residual block), row by row.

The expanded rows that a depthwise window needs are kept in a ring buffer of ``kernel`` rows in scratch, and each output
row expands only the ``stride`` new ones; intermediate tensors never leave the cache. A thread recomputes the rows that
overlap with its neighbor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec


@dataclass(frozen=True)
class ConvChainSpec:
    """Sizes of the depthwise convolution's input, and strides in bytes."""

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
    residual_row: int
    middle: int  # bytes of one of its output rows

    @property
    def ring_row(self) -> int:
        return (self.left + self.wide + self.right) * self.pixel

    @property
    def scratch(self) -> int:
        return self.kernel * self.ring_row + self.middle + 256


def emit_conv_chain(module: Module, name: str, lanes: int, chain: ConvChainSpec, steps: Sequence[Function]) -> None:
    """Work units are output rows. ``steps`` are the functions of the three convolutions, each for one row.

    Arguments: data, output, second operand, the weights of the three, a row of zeros.
    """
    f = module.kernel(name)
    loop = _RowLoop(f, chain, steps)
    _zero_side_padding(f, lanes, chain, loop.ring)
    row_count = f.op("sub", f.arg("end"), f.arg("begin"))
    f.if_then(f.compare("sgt", row_count, 0), lambda: loop.emit(row_count))
    f.ret()


class _RowLoop:
    """The loop over output rows: each reads ``kernel`` rows of the ring buffer, of which ``stride`` are new."""

    def __init__(self, f: Function, chain: ConvChainSpec, steps: Sequence[Function]) -> None:
        self.f, self.chain = f, chain
        self.expand, self.across, self.project = steps
        self.data, self.out, self.residual, self.first, self.taps, self.last, self.zeros = (
            f.load_arg(PTR, i) for i in range(7)
        )
        self.ring = f.arg("scratch")
        self.middle = f.gep(self.ring, chain.kernel * chain.ring_row)

    def emit(self, row_count: Reg) -> None:
        self.f.loop(row_count, [const(0, I64)], lambda y, now: [self._row(y, now[0])])

    def _slot(self, row: Reg) -> Reg:
        """The ring buffer slot of a row, including its left padding."""
        f = self.f
        return f.gep(self.ring, f.mul(f.op("urem", row, self.chain.kernel), self.chain.ring_row))

    def _row(self, y: Reg, done: Reg) -> Reg:
        """Compute one output row. Input rows below ``done`` are already expanded; returns the new value of ``done``."""
        f, chain = self.f, self.chain
        out_y = f.op("add", f.arg("begin"), y)
        start = f.add(f.mul(out_y, chain.stride), -chain.top)
        end = f.call("llvm.smin.i64", I64, f.add(start, chain.kernel), const(chain.high, I64))
        first_new = f.call("llvm.smax.i64", I64, f.call("llvm.smax.i64", I64, start, done), const(0, I64))
        f.for_range(first_new, end, self._expand)
        f.call_void(self.across, *self._window(start), self.middle, self.taps, self.middle)
        target, residual_row = (
            f.gep(self.out, f.mul(out_y, chain.out_row)),
            f.gep(self.residual, f.mul(out_y, chain.residual_row)),
        )
        f.call_void(self.project, self.middle, self.last, target, residual_row)
        return end

    def _expand(self, row: Reg) -> None:
        f, chain = self.f, self.chain
        target = f.gep(self._slot(row), chain.left * chain.pixel)
        f.call_void(self.expand, f.gep(self.data, f.mul(row, chain.in_row)), self.first, target, target)

    def _window(self, start: Reg) -> list[Reg]:
        """The rows of a window; a row of zeros above and below the image."""
        f, rows = self.f, []
        for dy in range(self.chain.kernel):
            row = f.add(start, dy)
            inside = f.compare("ult", row, self.chain.high)  # unsigned: negative rows are out of range too
            rows.append(f.select(inside, self._slot(f.select(inside, row, const(0, I64))), self.zeros))
        return rows


def _fill(f: Function, at: Reg, length: int, zero: Reg) -> None:
    size = 4 * lane_count(zero.type)
    f.for_range(const(0, I64), const(length, I64), lambda i: f.store(zero, f.gep(at, i)), size)


def _zero_side_padding(f: Function, lanes: int, chain: ConvChainSpec, ring: Reg) -> None:
    """Zero the left and right padding of every ring buffer row. Pixels are full vectors."""
    zero = const(0, vec(lanes, "float"))
    ranges = [(0, chain.left * chain.pixel), ((chain.left + chain.wide) * chain.pixel, chain.right * chain.pixel)]
    for row in range(chain.kernel):
        for start, length in ranges:
            if length:
                _fill(f, f.gep(ring, row * chain.ring_row + start), length, zero)
