"""Elementwise loop nests over strided, broadcast or transposed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec

Body = Callable[[Function, list[Reg]], Reg]
ElementBody = Callable[[list[Reg], Reg, int], None]


@dataclass(frozen=True)
class LoopOperand:
    """Elements of ``item`` bytes and LLVM type ``kind``; ``strides`` in bytes, 0 where broadcast."""

    kind: str
    item: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class LoopNest:
    """``operands`` are the inputs, then the output. Work units are indices of all but the two innermost dimensions."""

    shape: tuple[int, ...]  # at least three
    operands: tuple[LoopOperand, ...]

    @property
    def units(self) -> int:
        total = 1
        for n in self.shape[:-2]:
            total *= n
        return total


_UNIT_ELEMENTS = 4096  # elements per work unit, approximately


def plan_loops(shape: Sequence[int], operands: Sequence[LoopOperand]) -> list[tuple[LoopNest, tuple[int, ...]]]:
    """Loop nests that cover all elements (one or two), each with the byte offsets of its operands."""
    dims, strides = collapse_dims(list(shape), [list(o.strides) for o in operands])
    nests = []
    for size, start in _split_long_dim(dims):
        offsets = tuple(start * s[-1] for s in strides)
        nests.append((_block_loops([*dims[:-1], size], strides, operands), offsets))
    return nests


def collapse_dims(dims: list[int], strides: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Drop dimensions of size 1 and merge adjacent dimensions that are contiguous for every operand."""
    kept_dims = [i for i, n in enumerate(dims) if n != 1] or [0]
    dims, strides = (
        [dims[i] for i in kept_dims] if dims else [1],
        [[s[i] for i in kept_dims] if s else [0] for s in strides],
    )
    i = len(dims) - 2
    while i >= 0:
        if all(s[i] == s[i + 1] * dims[i + 1] for s in strides):
            dims[i] *= dims[i + 1]
            del dims[i + 1]
            for s in strides:
                del s[i]
        i -= 1
    return dims, strides


def _split_long_dim(dims: list[int]) -> list[tuple[int, int]]:
    """Split a single long dimension into full blocks and a remainder: (size, start)."""
    last = dims[-1]
    if len(dims) > 1 or last <= _UNIT_ELEMENTS:
        return [(last, 0)]
    full = last // _UNIT_ELEMENTS * _UNIT_ELEMENTS
    return [(full, 0)] + ([(last - full, full)] if last > full else [])


def _block_loops(dims: list[int], strides: list[list[int]], operands: Sequence[LoopOperand]) -> LoopNest:
    strides = [list(s) for s in strides]
    if len(dims) == 1 and dims[0] > _UNIT_ELEMENTS:
        _split(dims, strides, 0, _UNIT_ELEMENTS)
    if len(dims) == 1:
        dims, strides = [1, *dims], [[0, *s] for s in strides]
    middle = dims[-2]
    max_rows = max(1, _UNIT_ELEMENTS // dims[-1])
    block = next(n for n in range(min(max_rows, middle), 0, -1) if middle % n == 0)
    _split(dims, strides, len(dims) - 2, block)
    blocked = tuple(LoopOperand(o.kind, o.item, tuple(s)) for o, s in zip(operands, strides, strict=True))
    return LoopNest(tuple(dims), blocked)


def _split(dims: list[int], strides: list[list[int]], at: int, block: int) -> None:
    dims[at : at + 1] = [dims[at] // block, block]
    for s in strides:
        s[at : at + 1] = [s[at] * block, s[at]]


def emit_elementwise_kernel(module: Module, name: str, lanes: int, loops: LoopNest, body: Body) -> None:
    """Apply ``body`` to ``lanes`` elements at a time. Arguments: the operands' addresses, the output's last."""
    f = module.kernel(name)
    pointers = [f.load_arg(PTR, i) for i in range(len(loops.operands))]
    emit_loop_nest(f, lanes, loops, pointers, lambda now, at, width: _emit_element(f, loops, now, at, width, body))


def emit_loop_nest(f: Function, lanes: int, loops: LoopNest, pointers: list[Reg], element: ElementBody) -> None:
    """``element(pointers, index, lanes)`` for all work units of a kernel."""

    def unit(index: Reg) -> None:
        unit_pointers = _unit_pointers(f, loops, pointers, index)

        def middle(_: Reg, now: list[Reg]) -> list[Reg]:
            _emit_inner_loop(f, lanes, loops, now, element)
            return [f.gep(p, o.strides[-2]) for p, o in zip(now, loops.operands, strict=True)]

        f.loop(loops.shape[-2], unit_pointers, middle)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


def _unit_pointers(f: Function, loops: LoopNest, pointers: list[Reg], index: Reg) -> list[Reg]:
    """The operands' addresses at the start of a work unit."""
    unit_pointers = list(pointers)
    outer = loops.shape[:-2]
    for dim in range(len(outer) - 1, -1, -1):
        n = outer[dim]
        position = f.op("urem", index, n) if dim else index
        index = f.op("udiv", index, n) if dim else index
        for i, operand in enumerate(loops.operands):
            if operand.strides[dim]:
                unit_pointers[i] = f.gep(unit_pointers[i], f.mul(position, operand.strides[dim]))
    return unit_pointers


def _emit_inner_loop(f: Function, lanes: int, loops: LoopNest, now: list[Reg], element: ElementBody) -> None:
    """The innermost dimension: vectorized if every operand is contiguous or broadcast."""
    length = loops.shape[-1]
    straight = all(o.strides[-1] in (0, o.item) for o in loops.operands) and loops.operands[-1].strides[-1]
    if not straight or length < lanes:
        lanes = next(n for n in (32, 16, 8, 4, 1) if n <= length and (n == 1 or (straight and n < lanes)))
    vectors, rest = divmod(length, lanes)
    unroll = next((u for u in (4, 2) if vectors % u == 0 and lanes > 1), 1)

    def several(i: Reg, _: list[Reg]) -> list[Reg]:
        for u in range(unroll):
            element(now, f.add(i, u * lanes) if u else i, lanes)
        return []

    f.loop(vectors * lanes, [], several, unroll * lanes)
    if rest:  # the last vector overlaps the one before it
        element(now, const(length - lanes, I64), lanes)


def _emit_element(f: Function, loops: LoopNest, now: list[Reg], at: Reg, lanes: int, body: Body) -> None:
    args = []
    for pointer, operand in zip(now[:-1], loops.operands[:-1], strict=True):
        step = operand.strides[-1]
        if step == 0:
            args.append(f.splat(f.load(operand.kind, pointer), lanes))
        else:
            args.append(f.load(vec(lanes, operand.kind), f.gep(pointer, f.mul(at, step))))
    result, out = body(f, args), loops.operands[-1]
    f.store(result, f.gep(now[-1], f.mul(at, out.strides[-1])))
