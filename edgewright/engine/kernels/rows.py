"""Rows of reals made bytes by their own range: each row carries what its bytes stand for.

A row is its bytes, then at ``Rows.notes`` one over its scale, its zero point and its scale (see ``Numerics.choose``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgewright.engine.codegen import PTR, Function, Module, Reg, count, number, vec
from edgewright.engine.kernels.along import each, fold, halved, load
from edgewright.engine.vector import clamp, int_max, int_min, larger, round_to_int, smaller

INVERSE, ZERO, SCALE = 0, 4, 8  # where they are in the notes


@dataclass(frozen=True)
class Rows:
    """``length`` elements of a row; ``step`` bytes from a row of reals to the next."""

    length: int
    step: int = 0

    @property
    def notes(self) -> int:
        """Bytes from a row's start to its notes."""
        return -(-self.length // 16) * 16

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next."""
        return self.notes + 16


def emit_rows(module: Module, name: str, lanes: int, rows: Rows) -> None:
    """Units are rows. Slots: reals, bytes. Bytes are kept 128 higher, as unsigned ones."""
    f = module.kernel(name)
    data, out = f.slot(PTR, 0), f.slot(PTR, 1)

    def row(y: Reg) -> None:
        source, target = f.at(data, f.mul(y, rows.step)), f.at(out, f.mul(y, rows.pitch))
        low = _extreme(f, lanes, rows.length, source, smaller)
        high = _extreme(f, lanes, rows.length, source, larger)
        scale, zero = _choose(f, low, high)
        notes = f.at(target, rows.notes)
        f.store(f.op("fdiv", number(1, "float"), scale), notes, INVERSE)
        f.store(zero, notes, ZERO)
        f.store(scale, notes, SCALE)

        def store(at: Reg, like: Reg) -> None:
            wide = count(like.type)
            whole = round_to_int(f, f.op("fmul", load(f, source, at, like), f.splat(scale, wide)))
            moved = f.op("add", whole, f.splat(zero, wide))
            bounded = int_min(f, int_max(f, moved, number(0, moved.type)), number(255, moved.type))
            f.store(f.cast("trunc", bounded, vec(wide, "i8")), f.at(target, at))

        each(f, lanes, rows.length, store)

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()


def _extreme(f: Function, lanes: int, length: int, source: Reg, better: Callable[[Function, Reg, Reg], Reg]) -> Reg:
    """The least or the largest element, or 0."""

    def take(a: Reg, b: Reg) -> Reg:
        return better(f, a, b)

    step = lambda at, now: take(now, load(f, source, at, now))  # noqa: E731
    return fold(f, lanes, length, number(0, "float"), step, lambda f, x: halved(f, x, take))


def _choose(f: Function, low: Reg, high: Reg) -> tuple[Reg, Reg]:
    """Steps per unit, and the byte that stands for 0."""
    flat = f.compare("oeq", low, high)
    one = number(1, "float")
    scale = f.op("fdiv", number(255, "float"), f.select(flat, one, f.op("fsub", high, low)))
    scale = f.select(flat, one, scale)
    below, above = f.op("fmul", low, scale), f.op("fmul", high, scale)
    sides = f.op("fadd", f.op("fadd", number(-128, "float"), below), f.op("fadd", number(127, "float"), above))
    first, second = f.op("fsub", number(-128, "float"), below), f.op("fsub", number(127, "float"), above)
    zero = f.select(f.compare("ogt", sides, number(0, "float")), first, second)
    return scale, f.add(round_to_int(f, clamp(f, zero, -128, 127)), 128)
