"""Sums, means, products and extremes over some dimensions of a dense tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.engine.codegen import PTR, Function, Module, Reg, number, vec
from edgewright.engine.kernels.along import fold, halved, larger, load, smaller
from edgewright.engine.kernels.packing import pieces

Join = Callable[[Function, Reg, Reg], Reg]
JOINS: dict[str, tuple[float, Join]] = {
    "sum": (0.0, lambda f, a, b: f.op("fadd", a, b)),
    "mean": (0.0, lambda f, a, b: f.op("fadd", a, b)),
    "prod": (1.0, lambda f, a, b: f.op("fmul", a, b)),
    "amax": (float("-inf"), larger),
    "amin": (float("inf"), smaller),
}


@dataclass(frozen=True)
class Reduce:
    """``kept`` and ``gone`` dimensions as (size, bytes to the next), outermost first.

    ``inner``: how many elements lie side by side at the end; ``inside``: they are among those that are made one.
    """

    kind: str
    kept: tuple[tuple[int, int], ...]
    gone: tuple[tuple[int, int], ...]
    inner: int
    inside: bool
    share: float = 1.0  # what a mean is multiplied by


def plan_reduce(kind: str, shape: Sequence[int], axes: Sequence[int]) -> Reduce:
    """Over ``axes`` of a dense tensor of single precision."""
    dims: list[tuple[int, bool]] = []
    for d, n in enumerate(shape):
        if dims and dims[-1][1] == (d in axes):
            dims[-1] = dims[-1][0] * n, dims[-1][1]
        else:
            dims.append((n, d in axes))
    count = 1
    for n, gone in dims:
        count *= n if gone else 1
    inner, inside = dims.pop() if dims else (1, False)
    sides: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    step = 4 * inner
    for n, gone in reversed(dims):
        sides[gone].insert(0, (n, step))
        step *= n
    share = 1 / count if kind == "mean" and count else 1.0
    return Reduce(kind, tuple(sides[False]), tuple(sides[True]), inner, inside, share)


def block(lanes: int) -> int:
    """Results of a unit, where they lie side by side."""
    return 4 * lanes


def units(lanes: int, reduce: Reduce) -> int:
    total = 1 if reduce.inside else -(-reduce.inner // block(lanes))
    for n, _ in reduce.kept:
        total *= n
    return total


def emit_reduce(module: Module, name: str, lanes: int, reduce: Reduce) -> None:
    """Units are results, or blocks of them. Slots: data, output."""
    f = module.kernel(name)
    data, out = f.slot(PTR, 0), f.slot(PTR, 1)
    emit = _across if reduce.inside else _beside
    f.span(f.arg("begin"), f.arg("end"), lambda index: emit(f, lanes, reduce, data, out, index))
    f.give()


def _start(f: Function, reduce: Reduce, data: Reg, index: Reg) -> Reg:
    """Where the elements of a result begin."""
    for n, step in reversed(reduce.kept):
        data = f.at(data, f.mul(f.op("urem", index, n), step))
        index = f.op("udiv", index, n)
    return data


def _around(f: Function, gone: Sequence[tuple[int, int]], start: Reg, sums: list[Reg],
            body: Callable[[Reg, list[Reg]], list[Reg]]) -> list[Reg]:  # fmt: skip
    """``body(address, sums)`` at every point of the dimensions that are made one."""
    if not gone:
        return body(start, sums)
    (n, step), rest = gone[0], gone[1:]

    def once(_: Reg, now: list[Reg]) -> list[Reg]:
        return [f.at(now[0], step), *_around(f, rest, now[0], now[1:], body)]

    return f.repeat(n, [start, *sums], once)[1:]


def _shared(f: Function, reduce: Reduce, x: Reg) -> Reg:
    return x if reduce.share == 1.0 else f.op("fmul", x, number(reduce.share, x.type))


def _across(f: Function, lanes: int, reduce: Reduce, data: Reg, out: Reg, index: Reg) -> None:
    """Elements side by side are made one number."""
    first, join = JOINS[reduce.kind]

    def row(at: Reg, now: list[Reg]) -> list[Reg]:
        step = lambda i, total: join(f, total, load(f, at, i, total))  # noqa: E731
        made = fold(
            f, lanes, reduce.inner, number(first, "float"), step, lambda f, x: halved(f, x, lambda a, b: join(f, a, b))
        )
        return [join(f, now[0], made)]

    total = _around(f, reduce.gone, _start(f, reduce, data, index), [number(first, "float")], row)[0]
    f.store(_shared(f, reduce, total), f.at(out, f.mul(index, 4)))


def _beside(f: Function, lanes: int, reduce: Reduce, data: Reg, out: Reg, index: Reg) -> None:
    """Results side by side, as many as registers hold at a time."""
    size, count = block(lanes), -(-reduce.inner // block(lanes))
    which, outer = f.op("urem", index, count), f.op("udiv", index, count)
    column = f.mul(which, size)
    source = f.at(_start(f, reduce, data, outer), f.mul(column, 4))
    target = f.at(f.at(out, f.mul(outer, 4 * reduce.inner)), f.mul(column, 4))
    last = reduce.inner - (count - 1) * size
    is_last = f.compare("eq", which, count - 1)
    f.when(is_last, lambda: _columns(f, lanes, reduce, source, target, last))
    if count > 1:
        f.when(f.op("xor", is_last, Reg("true", "i1")), lambda: _columns(f, lanes, reduce, source, target, size))


def _columns(f: Function, lanes: int, reduce: Reduce, source: Reg, target: Reg, columns: int) -> None:
    first, join = JOINS[reduce.kind]
    parts = pieces(columns, lanes)

    def row(at: Reg, now: list[Reg]) -> list[Reg]:
        return [join(f, total, f.load(total.type, at, 4 * start)) for total, (start, _) in zip(now, parts, strict=True)]

    sums = _around(f, reduce.gone, source, [number(first, vec(n, "float")) for _, n in parts], row)
    for total, (start, _) in zip(sums, parts, strict=True):
        f.store(_shared(f, reduce, total), target, 4 * start)
