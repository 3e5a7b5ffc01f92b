"""Vectors of which only the first elements count, as many as are known when the graph runs."""

from __future__ import annotations

from edgewright.engine.codegen.builder import I64, Function, Reg, const, element_type, lane_count, vec

_SHORT = {"float": "f32", "i32": "i32"}


def first_lanes_mask(f: Function, used: Reg, lanes: int) -> Reg:
    """A mask of the first ``used`` (i64) of so many lanes; all of them if it is more."""
    most = f.call("llvm.smin.i64", I64, used, const(lanes, I64))
    wide = f.splat(f.cast("trunc", most, "i32"), lanes)
    listed = ", ".join(f"i32 {i}" for i in range(lanes))
    return f.compare("slt", Reg(f"<{listed}>", vec(lanes, "i32")), wide)


def masked_load(f: Function, kind: str, place: Reg, mask: Reg) -> Reg:
    """Elements of four bytes; 0 where the mask is not."""
    name = f"llvm.masked.load.v{lane_count(kind)}{_SHORT[element_type(kind)]}.p0"
    return f.call(name, kind, place, const(4, "i32"), mask, const(0, kind))


def masked_store(f: Function, value: Reg, place: Reg, mask: Reg) -> None:
    """Nothing is written where the mask is not."""
    name = f"llvm.masked.store.v{lane_count(value.type)}{_SHORT[element_type(value.type)]}.p0"
    f.call(name, "void", value, place, const(4, "i32"), mask)
