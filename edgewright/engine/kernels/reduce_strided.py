"""Sums and the like over some dimensions: each result is made of elements that lie at fixed distances from a first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest

Combine = Callable[[Function, Reg, Reg], Reg]
Body = Callable[[Function, list[Reg]], Reg]


def emit_strided_reduce(module: Module, name: str, lanes: int, loops: LoopNest, along: Sequence[tuple[int, int]],
              first: Callable[[Function, Reg], Reg], fold: Combine, body: Body) -> None:  # fmt: skip
    """``first`` makes a vector of an element as it is stored, ``fold`` one of two such; ``body`` is given what became
    of the first operand, and the others as they are. ``along``: how many elements, how many bytes apart."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(len(loops.operands))]

    def element(now: list[Reg], at: Reg, width: int) -> None:
        data, *others = loops.operands[:-1]
        place = f.gep(now[0], f.mul(at, data.strides[-1]))
        total = _reduce_dims(f, place, along, lambda where: first(f, f.load(vec(width, data.kind), where)), fold)
        given = [total]
        for where, operand in zip(now[1:-1], others, strict=True):
            step = operand.strides[-1]
            wide = vec(width, operand.kind)
            given.append(f.load(wide, f.gep(where, f.mul(at, step))) if step else
                         f.splat(f.load(operand.kind, where), width))  # fmt: skip
        out = loops.operands[-1]
        f.store(body(f, given), f.gep(now[-1], f.mul(at, out.strides[-1])))

    emit_loop_nest(f, lanes, loops, pointers, element)


def _reduce_dims(
    f: Function, place: Reg, along: Sequence[tuple[int, int]], load: Callable[[Reg], Reg], fold: Combine
) -> Reg:
    """The first element, folded with each other one: inner dimensions in loops of their own."""
    if not along:
        return load(place)
    (count, step), inner = along[0], along[1:]
    start = _reduce_dims(f, place, inner, load, fold)
    if count == 1:
        return start

    def once(i: Reg, now: list[Reg]) -> list[Reg]:
        where = f.gep(place, f.mul(f.op("add", i, const(1, I64)), step))
        return [fold(f, now[0], _reduce_dims(f, where, inner, load, fold))]

    return f.loop(count - 1, [start], once)[0]
