"""Masked loads and stores of the first n lanes, with n known at run time."""

from __future__ import annotations

from edgewright.engine.codegen.builder import I64, Function, Reg, const, element_type, lane_count, vec

_SHORT = {"float": "f32", "i32": "i32"}


def first_lanes_mask(f: Function, used: Reg, lanes: int) -> Reg:
    """A mask of the first ``used`` (i64) lanes; all lanes if it exceeds them."""
    count = f.call("llvm.smin.i64", I64, used, const(lanes, I64))
    wide = f.splat(f.cast("trunc", count, "i32"), lanes)
    listed = ", ".join(f"i32 {i}" for i in range(lanes))
    return f.compare("slt", Reg(f"<{listed}>", vec(lanes, "i32")), wide)


def masked_load(f: Function, kind: str, pointer: Reg, mask: Reg) -> Reg:
    """Load 4-byte elements; 0 where the mask is false."""
    name = f"llvm.masked.load.v{lane_count(kind)}{_SHORT[element_type(kind)]}.p0"
    return f.call(name, kind, pointer, const(4, "i32"), mask, const(0, kind))


def masked_store(f: Function, value: Reg, pointer: Reg, mask: Reg) -> None:
    """Store 4-byte elements where the mask is true."""
    name = f"llvm.masked.store.v{lane_count(value.type)}{_SHORT[element_type(value.type)]}.p0"
    f.call(name, "void", value, pointer, const(4, "i32"), mask)
