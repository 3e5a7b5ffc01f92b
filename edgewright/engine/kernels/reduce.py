"""Reductions, cumulative sums and top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, lane_count, vec
from edgewright.engine.codegen.typed_arith import TYPED_OPS, is_float
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest
from edgewright.engine.kernels.matmul import power_of_two_chunks
from edgewright.engine.kernels.norm_softmax import load, nan_max, nan_min, reduce_lanes, reduce_row
from edgewright.ir.dtypes import DType

# --------------------------------------------------------------------------------------------------------------- reduce

# Sum, mean, product, maximum and minimum over some dimensions of a dense float32 tensor.

Combine = Callable[[Function, Reg, Reg], Reg]
COMBINERS: dict[str, tuple[float, Combine]] = {
    "sum": (0.0, lambda f, a, b: f.op("fadd", a, b)),
    "mean": (0.0, lambda f, a, b: f.op("fadd", a, b)),
    "prod": (1.0, lambda f, a, b: f.op("fmul", a, b)),
    "amax": (float("-inf"), nan_max),
    "amin": (float("inf"), nan_min),
}


@dataclass(frozen=True)
class ReduceSpec:
    """``outer`` (kept) and ``reduced`` dimensions as (size, stride in bytes), outermost first.

    ``inner``: size of the contiguous innermost dimension; ``inside``: whether it is reduced.
    """

    kind: str
    outer: tuple[tuple[int, int], ...]
    reduced: tuple[tuple[int, int], ...]
    inner: int
    inside: bool
    share: float = 1.0  # the factor of a mean: 1 / count


def plan_reduce(kind: str, shape: Sequence[int], axes: Sequence[int]) -> ReduceSpec:
    """Reduce ``axes`` of a dense float32 tensor."""
    dims: list[tuple[int, bool]] = []
    for d, n in enumerate(shape):
        if dims and dims[-1][1] == (d in axes):
            dims[-1] = dims[-1][0] * n, dims[-1][1]
        else:
            dims.append((n, d in axes))
    total = 1
    for n, reduced in dims:
        total *= n if reduced else 1
    inner, inside = dims.pop() if dims else (1, False)
    sides: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    step = 4 * inner
    for n, reduced in reversed(dims):
        sides[reduced].insert(0, (n, step))
        step *= n
    share = 1 / total if kind == "mean" and total else 1.0
    return ReduceSpec(kind, tuple(sides[False]), tuple(sides[True]), inner, inside, share)


def unit_results(lanes: int) -> int:
    """Results per work unit, if the innermost dimension is kept."""
    return 4 * lanes


def units(lanes: int, reduce: ReduceSpec) -> int:
    total = 1 if reduce.inside else -(-reduce.inner // unit_results(lanes))
    for n, _ in reduce.outer:
        total *= n
    return total


def without_sizes(reduce: ReduceSpec) -> ReduceSpec:
    """The specification without sizes, which are kernel arguments then, except the innermost."""
    outer, reduced = (((0, 0),) * len(dims) for dims in (reduce.outer, reduce.reduced))
    return replace(reduce, outer=outer, reduced=reduced, share=0.0)


def runtime_params(reduce: ReduceSpec) -> list[int | float]:
    """The arguments of a kernel emitted for ``without_sizes``."""
    return [n for pair in (*reduce.outer, *reduce.reduced) for n in pair] + [float(reduce.share)]


@dataclass(frozen=True)
class _Dims:
    """Sizes and strides, as constants or registers."""

    outer: tuple[tuple[Operand, Operand], ...]
    reduced: tuple[tuple[Operand, Operand], ...]
    share: Reg | None


def _load_dims(f: Function, reduce: ReduceSpec) -> _Dims:
    """Load the dimensions from the kernel's arguments, after the addresses."""
    dim_count = len(reduce.outer) + len(reduce.reduced)
    pairs = tuple((f.load_arg(I64, 2 + 2 * i), f.load_arg(I64, 3 + 2 * i)) for i in range(dim_count))
    share = f.load_arg("float", 2 + 2 * dim_count) if reduce.kind == "mean" else None
    return _Dims(pairs[: len(reduce.outer)], pairs[len(reduce.outer) :], share)


def emit_reduce(module: Module, name: str, lanes: int, reduce: ReduceSpec, dynamic: bool = False) -> None:
    """Work units are results, or blocks of them. Arguments: data, output, and the ``runtime_params`` if
    ``dynamic``."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)
    share = None if reduce.share == 1.0 else const(reduce.share, "float")
    dims = _load_dims(f, reduce) if dynamic else _Dims(reduce.outer, reduce.reduced, share)
    emit = _reduce_inner if reduce.inside else _reduce_outer
    f.for_range(f.arg("begin"), f.arg("end"), lambda index: emit(f, lanes, reduce, dims, data, out, index))
    f.ret()


def _first_element(f: Function, dims: _Dims, data: Reg, index: Reg) -> Reg:
    """The address of a result's first element."""
    for n, step in reversed(dims.outer):
        data = f.gep(data, f.mul(f.op("urem", index, n), step))
        index = f.op("udiv", index, n)
    return data


def _loop_over_reduced(f: Function, reduced: Sequence[tuple[Operand, Operand]], start: Reg, sums: list[Reg],
            body: Callable[[Reg, list[Reg]], list[Reg]]) -> list[Reg]:  # fmt: skip
    """``body(address, sums)`` at every point of the reduced dimensions."""
    if not reduced:
        return body(start, sums)
    (n, step), rest = reduced[0], reduced[1:]

    def once(_: Reg, now: list[Reg]) -> list[Reg]:
        return [f.gep(now[0], step), *_loop_over_reduced(f, rest, now[0], now[1:], body)]

    return f.loop(n, [start, *sums], once)[1:]


def _scale_mean(f: Function, dims: _Dims, x: Reg) -> Reg:
    return x if dims.share is None else f.op("fmul", x, f.splat(dims.share, lane_count(x.type)))


def _reduce_inner(f: Function, lanes: int, reduce: ReduceSpec, dims: _Dims, data: Reg, out: Reg, index: Reg) -> None:
    """The innermost dimension is reduced: vector accumulators, reduced across lanes."""
    first, join = COMBINERS[reduce.kind]

    def row(at: Reg, now: list[Reg]) -> list[Reg]:
        step = lambda i, total: join(f, total, load(f, at, i, total))  # noqa: E731
        row_total = reduce_row(
            f,
            lanes,
            reduce.inner,
            const(first, "float"),
            step,
            lambda f, x: reduce_lanes(f, x, lambda a, b: join(f, a, b)),
        )
        return [join(f, now[0], row_total)]

    total = _loop_over_reduced(f, dims.reduced, _first_element(f, dims, data, index), [const(first, "float")], row)[0]
    f.store(_scale_mean(f, dims, total), f.gep(out, f.mul(index, 4)))


def _reduce_outer(f: Function, lanes: int, reduce: ReduceSpec, dims: _Dims, data: Reg, out: Reg, index: Reg) -> None:
    """The innermost dimension is kept: one accumulator per result, as many as registers hold."""
    size, blocks = unit_results(lanes), -(-reduce.inner // unit_results(lanes))
    block, outer = f.op("urem", index, blocks), f.op("udiv", index, blocks)
    column = f.mul(block, size)
    source = f.gep(_first_element(f, dims, data, outer), f.mul(column, 4))
    target = f.gep(f.gep(out, f.mul(outer, 4 * reduce.inner)), f.mul(column, 4))
    last = reduce.inner - (blocks - 1) * size
    is_last = f.compare("eq", block, blocks - 1)
    f.if_then(is_last, lambda: _columns(f, lanes, reduce, dims, (source, target), last))
    if blocks > 1:
        f.if_then(
            f.op("xor", is_last, Reg("true", "i1")), lambda: _columns(f, lanes, reduce, dims, (source, target), size)
        )


def _columns(f: Function, lanes: int, reduce: ReduceSpec, dims: _Dims, pointers: tuple[Reg, Reg], columns: int) -> None:
    (first, join), (source, target) = COMBINERS[reduce.kind], pointers
    parts = power_of_two_chunks(columns, lanes)

    def row(at: Reg, now: list[Reg]) -> list[Reg]:
        return [join(f, total, f.load(total.type, at, 4 * start)) for total, (start, _) in zip(now, parts, strict=True)]

    sums = _loop_over_reduced(f, dims.reduced, source, [const(first, vec(n, "float")) for _, n in parts], row)
    for total, (start, _) in zip(sums, parts, strict=True):
        f.store(_scale_mean(f, dims, total), target, 4 * start)


# ------------------------------------------------------------------------------------------------------- reduce strided

# Reduction over strided dimensions: each result combines elements at fixed offsets from a first one.


Body = Callable[[Function, list[Reg]], Reg]


def emit_strided_reduce(module: Module, name: str, lanes: int, loops: LoopNest, dims: Sequence[tuple[int, int]],
              first: Callable[[Function, Reg], Reg], combine: Combine, body: Body) -> None:  # fmt: skip
    """``first`` converts loaded elements, ``combine`` joins two; ``body`` takes the reduced first operand and the other
    operands. ``dims``: the reduced dimensions as (size, stride in bytes)."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(len(loops.operands))]

    def element(now: list[Reg], at: Reg, width: int) -> None:
        data, *others = loops.operands[:-1]
        address = f.gep(now[0], f.mul(at, data.strides[-1]))
        total = _reduce_dims(f, address, dims, lambda where: first(f, f.load(vec(width, data.kind), where)), combine)
        args = [total]
        for where, operand in zip(now[1:-1], others, strict=True):
            step = operand.strides[-1]
            wide = vec(width, operand.kind)
            args.append(f.load(wide, f.gep(where, f.mul(at, step))) if step else
                         f.splat(f.load(operand.kind, where), width))  # fmt: skip
        out = loops.operands[-1]
        f.store(body(f, args), f.gep(now[-1], f.mul(at, out.strides[-1])))

    emit_loop_nest(f, lanes, loops, pointers, element)


def _reduce_dims(
    f: Function, address: Reg, dims: Sequence[tuple[int, int]], load: Callable[[Reg], Reg], combine: Combine
) -> Reg:
    """Combine the first element with all others; inner dimensions are nested loops."""
    if not dims:
        return load(address)
    (count, step), inner = dims[0], dims[1:]
    start = _reduce_dims(f, address, inner, load, combine)
    if count == 1:
        return start

    def once(i: Reg, now: list[Reg]) -> list[Reg]:
        where = f.gep(address, f.mul(f.op("add", i, const(1, I64)), step))
        return [combine(f, now[0], _reduce_dims(f, where, inner, load, combine))]

    return f.loop(count - 1, [start], once)[0]


# ----------------------------------------------------------------------------------------------------------------- scan

# Cumulative sum, reduction and top-k along one dimension of a dense tensor of any dtype.
#
# A line is the sequence of elements along that dimension; adjacent lines are processed together, one per vector lane.

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


def dtype_llvm_type(dtype: DType) -> str:
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
        start = const(0, vec(width, "double" if is_float(dtype) else dtype_llvm_type(dtype)))

        def element(_: Reg, now: list[Reg]) -> list[Reg]:
            x = f.load(vec(width, dtype_llvm_type(dtype)), now[0])
            total = f.op("fadd", now[2], f.cast("fpext", x, now[2].type)) if is_float(dtype) else f.op("add", now[2], x)
            f.store(f.cast("fptrunc", total, x.type), now[1])
            return [f.gep(now[0], step), f.gep(now[1], step), total]

        f.loop(scan.size, [first, result, start], element)

    _emit(module, name, scan, lanes, scan.size, dtype.itemsize, line)


def emit_scan_reduce(module: Module, name: str, scan: ScanSpec, lanes: int, kind: str) -> None:
    """Reduce each line, in its own dtype."""
    dtype, step = scan.type, scan.inner * scan.type.itemsize

    def line(f: Function, first: Reg, result: Reg, width: int) -> None:
        kind_ = vec(width, dtype_llvm_type(dtype))
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
                rank = _order_key(f, scan, f.load(vec(width, dtype_llvm_type(scan.type)), now[0]))
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
