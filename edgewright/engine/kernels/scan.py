"""Cumulative sum, reduction and top-k along one dimension of a dense tensor of any dtype.

A line is the sequence of elements along that dimension; adjacent lines are processed together, one per vector lane.
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
    """``outer`` lines of ``size`` elements with stride ``inner``. ``dtype`` is a numpy type string."""

    outer: int
    size: int
    inner: int
    dtype: str
    k: int = 1  # k of top-k
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


def _emit(module: Module, name: str, scan: ScanSpec, lanes: int, out_line: int, out_item: int, line: ScanBody) -> None:
    """``line(f, first, result, width)`` for each block of lines; ``out_line``: elements of an output line."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    width, item = scan.width(lanes), scan.type.itemsize
    blocks = -(-scan.inner // width)

    def unit(index: Reg) -> None:
        outer, block = f.op("udiv", index, blocks), f.op("urem", index, blocks)
        # The last block overlaps the one before it.
        column = f.call("llvm.umin.i64", I64, f.mul(block, width), const(scan.inner - width, I64))
        first = f.add(f.mul(outer, scan.size * scan.inner), column)
        out_first = f.add(f.mul(outer, out_line * scan.inner), column)
        line(f, f.gep(data, f.mul(first, item)), f.gep(out, f.mul(out_first, out_item)), width)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def emit_cumsum(module: Module, name: str, scan: ScanSpec, lanes: int) -> None:
    """Cumulative sums; of float32 in float64, because errors accumulate."""
    dtype, step = scan.type, scan.inner * scan.type.itemsize

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        start = const(0, vec(width, "double" if is_float(dtype) else llvm_type(dtype)))

        def element(_: Reg, now: list[Reg]) -> list[Reg]:
            x = f.load(vec(width, llvm_type(dtype)), now[0])
            total = f.op("fadd", now[2], f.cast("fpext", x, now[2].type)) if is_float(dtype) else f.op("add", now[2], x)
            f.store(f.cast("fptrunc", total, x.type), now[1])
            return [f.gep(now[0], step), f.gep(now[1], step), total]

        f.loop(scan.size, [first, result, start], element)

    _emit(module, name, scan, lanes, scan.size, dtype.itemsize, line)


def emit_scan_reduce(module: Module, name: str, scan: ScanSpec, lanes: int, kind: str) -> None:
    """Reduce each line, in its own dtype."""
    dtype, step = scan.type, scan.inner * scan.type.itemsize

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        kind_ = vec(width, llvm_type(dtype))
        total = f.load(kind_, first)
        if scan.size > 1:

            def element(_: Reg, now: list[Reg]) -> list[Reg]:
                return [f.gep(now[0], step), TYPED_OPS[REDUCE_OPS[kind]](f, dtype, [now[1], f.load(kind_, now[0])])]

            total = f.loop(scan.size - 1, [f.gep(first, step), total], element)[1]
        f.store(total, result)

    _emit(module, name, scan, lanes, 1, dtype.itemsize, line)


def _order_key(f: Function, scan: ScanSpec, x: Reg) -> Reg:
    """An int64 key with the order of the elements. Floats: their bits, with the magnitude inverted if negative."""
    dtype, lanes = scan.type, lane_count(x.type)
    wide = vec(lanes, I64)
    if not is_float(dtype):
        return f.cast("sext" if dtype.kind == "i" else "zext", x, wide)
    int_type = vec(lanes, "i32")
    bits = f.bitcast(f.op("fadd", x, const(0, x.type)), int_type)  # -0 to +0
    rank = f.select(f.compare("slt", bits, 0), f.op("xor", bits, 0x7FFFFFFF), bits)
    nan_key = const(0x7FFFFFFF, int_type)  # NaN is the largest
    return f.cast("sext", f.select(f.compare("uno", x, x), nan_key, rank), wide)


def emit_topk(module: Module, name: str, scan: ScanSpec, lanes: int) -> None:
    """Indices of the k best elements, best first; ties keep the earlier one.

    k passes over the line: each selects the best element that comes after the previous selection in (key, index) order.
    """
    step, above = scan.inner * scan.type.itemsize, "sgt" if scan.largest else "slt"

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        wide = vec(width, I64)
        none = const(-1, wide)

        def select_next(rank_index: Reg, last: list[Reg]) -> list[Reg]:
            fresh = f.splat(f.compare("eq", rank_index, 0), width)

            def element(i: Reg, now: list[Reg]) -> list[Reg]:
                rank = _order_key(f, scan, f.load(vec(width, llvm_type(scan.type)), now[0]))
                at = f.splat(i, width)
                later = f.op("and", f.compare("eq", rank, last[1]), f.compare("sgt", at, last[2]))
                remaining = f.op("or", fresh, f.op("or", f.compare(above, last[1], rank), later))
                better = f.op("or", f.compare("eq", now[2], none), f.compare(above, rank, now[1]))
                better_and_left = f.op("and", remaining, better)
                return [
                    f.gep(now[0], step),
                    f.select(better_and_left, rank, now[1]),
                    f.select(better_and_left, at, now[2]),
                ]

            selected = f.loop(scan.size, [first, const(0, wide), none], element)
            f.store(selected[2], last[0])
            return [f.gep(last[0], 8 * scan.inner), selected[1], selected[2]]

        f.loop(scan.k, [result, const(0, wide), none], select_next)

    _emit(module, name, scan, lanes, scan.k, 8, line)
