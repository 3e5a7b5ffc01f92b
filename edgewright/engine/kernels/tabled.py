"""Rows copied from places that a table names: moves that no strides describe."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen import I64, PTR, Module, Reg
from edgewright.engine.kernels.places import copy_row


@dataclass(frozen=True)
class Tabled:
    """Rows of ``inner`` bytes; places are in elements of ``item`` bytes."""

    inner: int
    item: int


def emit_tabled(module: Module, name: str, tabled: Tabled) -> None:
    """Units are rows. Slots: data, places of 32 bits, output."""
    f = module.kernel(name)
    data, places, out = (f.slot(PTR, i) for i in range(3))

    def row(unit: Reg) -> None:
        at = f.cast("zext", f.load("i32", f.at(places, f.mul(unit, 4)), align=4), I64)
        copy_row(f, tabled.inner, f.at(data, f.mul(at, tabled.item)), f.at(out, f.mul(unit, tabled.inner)))

    f.span(f.arg("begin"), f.arg("end"), row)
    f.give()
