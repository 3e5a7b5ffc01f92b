"""Fills the padding of an image: the bytes before, between and after its rows."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const


@dataclass(frozen=True)
class BorderSpec:
    """Sizes in bytes: ``before`` precedes the first pixel, ``between`` follows every row, ``after`` the last row's."""

    rows: int
    row: int
    width: int  # of a row without padding
    before: int
    between: int
    after: int

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.rows, self.row, self.width, self.before, self.between, self.after)


def emit_border_kernel(module: Module, name: str, item: int = 1) -> None:
    """Work units are the gaps: before the first row, after each row.

    Arguments: first pixel, fill value, ``BorderSpec.slots``.

    One kernel serves all images of ``item``-byte elements: there is little to fill, and compiling costs more.
    """
    f = module.kernel(name)
    first, fill_value = f.load_arg(PTR, 0), f.cast("trunc", f.load_arg(I64, 1), f"i{8 * item}")
    rows, row, width, before, between, after = (f.load_arg(I64, 2 + i) for i in range(6))
    fill_vector = f.splat(fill_value, 16 // item)

    def gap(unit: Reg) -> None:
        is_first = f.compare("eq", unit, 0)
        behind = f.add(f.mul(f.add(unit, -1), row), width)
        start = f.select(is_first, f.op("sub", const(0, I64), before), behind)
        last = f.select(f.compare("eq", unit, rows), f.add(between, after), between)
        _fill(f, f.gep(first, start), f.select(is_first, before, last), fill_value, fill_vector, item)

    f.for_range(f.arg("begin"), f.arg("end"), gap)
    f.ret()


def _fill(f: Function, at: Reg, length: Reg, fill_value: Reg, fill_vector: Reg, item: int) -> None:
    """Fill exactly ``length`` bytes; from 16 on the last vector overlaps the one before it."""
    zero = const(0, I64)
    small = f.compare("ult", length, 16)
    f.if_then(small, lambda: f.for_range(zero, length, lambda i: f.store(fill_value, f.gep(at, i)), item))

    def large() -> None:
        end = f.add(length, -16)
        f.for_range(zero, end, lambda i: f.store(fill_vector, f.gep(at, i)), 16)
        f.store(fill_vector, f.gep(at, end))

    f.if_then(f.compare("uge", length, 16), large)
