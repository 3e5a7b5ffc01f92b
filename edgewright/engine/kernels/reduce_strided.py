"""Reduction over strided dimensions: each result combines elements at fixed offsets from a first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.elementwise import LoopNest, emit_loop_nest

Combine = Callable[[Function, Reg, Reg], Reg]
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
