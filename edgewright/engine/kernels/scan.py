"""Along one dimension of a dense tensor of any type: running sums, reductions, and where the best elements are.

A line is what has all other indices alike. Lines that lie side by side are done together, as many as a vector has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.typed_arith import TYPED_OPS, is_float
from edgewright.ir.dtypes import DType

REDUCE_OPS = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}


@dataclass(frozen=True)
class ScanSpec:
    """``outer`` times ``size`` elements, each ``inner`` further than the one before. ``dtype`` as numpy writes it."""

    outer: int
    size: int
    inner: int
    dtype: str
    picks: int = 1  # best elements that are looked for
    largest: bool = True

    @property
    def type(self) -> DType:
        return np.dtype(self.dtype)

    def width(self, lanes: int) -> int:
        return lanes if self.inner >= lanes else 1

    def units(self, lanes: int) -> int:
        return self.outer * -(-self.inner // self.width(lanes))


def llvm_type(dtype: DType) -> str:
    return "float" if is_float(dtype) else f"i{8 * dtype.itemsize}"


ScanBody = Callable[[Function, Reg, Reg, int], None]


def _emit(module: Module, name: str, lines: ScanSpec, lanes: int, out_line: int, out_item: int, line: ScanBody) -> None:
    """``line(f, first, result, width)`` for each; ``out_line``: elements of a result's line. Slots: data, output."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    width, item = lines.width(lanes), lines.type.itemsize
    blocks = -(-lines.inner // width)

    def unit(index: Reg) -> None:
        outer, block = f.op("udiv", index, blocks), f.op("urem", index, blocks)
        # The last block lies over the one before it.
        column = f.call("llvm.umin.i64", I64, f.mul(block, width), const(lines.inner - width, I64))
        first = f.add(f.mul(outer, lines.size * lines.inner), column)
        made = f.add(f.mul(outer, out_line * lines.inner), column)
        line(f, f.gep(data, f.mul(first, item)), f.gep(out, f.mul(made, out_item)), width)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def emit_cumsum(module: Module, name: str, lines: ScanSpec, lanes: int) -> None:
    """Running sums; of reals in doubles, since each feeds the next."""
    dtype, step = lines.type, lines.inner * lines.type.itemsize

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        start = const(0, vec(width, "double" if is_float(dtype) else llvm_type(dtype)))

        def one(_: Reg, now: list[Reg]) -> list[Reg]:
            x = f.load(vec(width, llvm_type(dtype)), now[0])
            total = f.op("fadd", now[2], f.cast("fpext", x, now[2].type)) if is_float(dtype) else f.op("add", now[2], x)
            f.store(f.cast("fptrunc", total, x.type), now[1])
            return [f.gep(now[0], step), f.gep(now[1], step), total]

        f.loop(lines.size, [first, result, start], one)

    _emit(module, name, lines, lanes, lines.size, dtype.itemsize, line)


def emit_scan_reduce(module: Module, name: str, lines: ScanSpec, lanes: int, kind: str) -> None:
    """All of a line made one, in its own type."""
    dtype, step = lines.type, lines.inner * lines.type.itemsize

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        kept = vec(width, llvm_type(dtype))
        total = f.load(kept, first)
        if lines.size > 1:

            def one(_: Reg, now: list[Reg]) -> list[Reg]:
                return [f.gep(now[0], step), TYPED_OPS[REDUCE_OPS[kind]](f, dtype, [now[1], f.load(kept, now[0])])]

            total = f.loop(lines.size - 1, [f.gep(first, step), total], one)[1]
        f.store(total, result)

    _emit(module, name, lines, lanes, 1, dtype.itemsize, line)


def _order_key(f: Function, lines: ScanSpec, x: Reg) -> Reg:
    """Integers in the order of elements; equal ones are equal."""
    dtype, lanes = lines.type, lane_count(x.type)
    wide = vec(lanes, I64)
    if not is_float(dtype):
        return f.cast("sext" if dtype.kind == "i" else "zext", x, wide)
    whole = vec(lanes, "i32")
    bits = f.bitcast(f.op("fadd", x, const(0, x.type)), whole)  # there is one zero
    rank = f.select(f.compare("slt", bits, 0), f.op("xor", bits, 0x7FFFFFFF), bits)
    most = const(0x7FFFFFFF, whole)  # what is no number is larger than all
    return f.cast("sext", f.select(f.compare("uno", x, x), most, rank), wide)


def emit_topk(module: Module, name: str, lines: ScanSpec, lanes: int) -> None:
    """Where the best elements are, best first; of equals the earlier one. Each is the best that comes after the last.

    Truth is carried in 64 bits: 0 or -1.
    """
    step, above = lines.inner * lines.type.itemsize, "sgt" if lines.largest else "slt"

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        wide = vec(width, I64)
        none = const(-1, wide)

        def pick(turn: Reg, last: list[Reg]) -> list[Reg]:
            fresh = f.splat(f.compare("eq", turn, 0), width)

            def one(i: Reg, now: list[Reg]) -> list[Reg]:
                rank = _order_key(f, lines, f.load(vec(width, llvm_type(lines.type)), now[0]))
                at = f.splat(i, width)
                later = f.op("and", f.compare("eq", rank, last[1]), f.compare("sgt", at, last[2]))
                left = f.op("or", fresh, f.op("or", f.compare(above, last[1], rank), later))
                better = f.op("or", f.compare("eq", now[2], none), f.compare(above, rank, now[1]))
                take = f.op("and", left, better)
                return [f.gep(now[0], step), f.select(take, rank, now[1]), f.select(take, at, now[2])]

            found = f.loop(lines.size, [first, const(0, wide), none], one)
            f.store(found[2], last[0])
            return [f.gep(last[0], 8 * lines.inner), found[1], found[2]]

        f.loop(lines.picks, [result, const(0, wide), none], pick)

    _emit(module, name, lines, lanes, lines.picks, 8, line)
