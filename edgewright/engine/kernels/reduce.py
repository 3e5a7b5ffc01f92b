"""Sum, mean, product, maximum and minimum over some dimensions of a dense float32 tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Operand, Reg, const, lane_count, vec
from edgewright.engine.kernels.pack_operand import power_of_two_chunks
from edgewright.engine.kernels.row_reduce import load, nan_max, nan_min, reduce_lanes, reduce_row

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
