"""Elementwise loops over strided, broadcast or transposed tensors of static or dynamic shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, element_type, lane_count, vec

# ------------------------------------------------------------------------------------------------------------ lane mask

# Masked loads and stores of the first n lanes, with n known at run time.

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


# ---------------------------------------------------------------------------------------------------------- elementwise

# Elementwise loop nests over strided, broadcast or transposed tensors.

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


# -------------------------------------------------------------------------------------------------------- dynamic loops

# Elementwise loops over tensors with dynamic shapes: sizes and strides are kernel arguments.

_MAX_ROW = 1024  # a single long dimension is split into rows of this length
# elements per work unit, approximately
_UNROLL = 4
DYNAMIC_STRIDE = -1  # a stride known only at run time


@dataclass(frozen=True)
class DynamicLoops:
    """What the code depends on: the ``outer`` dimensions, and operands as (LLVM type, item size, inner stride).

    Inputs come first, then the output.
    """

    outer: int
    operands: tuple[tuple[str, int, int], ...]


def plan_dynamic_loops(shape: Sequence[int], operands: Sequence[LoopOperand]) -> tuple[DynamicLoops, list[int], int]:
    """The loop specification, the kernel's arguments after the operands' addresses, and the number of work units.

    A unit is some rows of ``inner`` elements. A single long dimension is split; the last row may be shorter.
    """
    dims, strides = collapse_dims(list(shape), [list(o.strides) for o in operands])
    total = dims[-1]
    if len(dims) == 1:
        inner = min(total, _MAX_ROW)
        dims, strides = [-(-total // inner), inner], [[s[0] * inner, s[0]] for s in strides]
    else:
        total *= dims[-2]
    *outer, middle, inner = dims
    rows = max(1, min(middle, _UNIT_ELEMENTS // inner))
    blocks = -(-middle // rows)
    operand_keys = tuple(
        (o.kind, o.item, s[-1] if s[-1] in (0, o.item) else DYNAMIC_STRIDE)
        for o, s in zip(operands, strides, strict=True)
    )
    units = blocks
    for n in outer:
        units *= n
    numbers = [rows, blocks, middle, inner, total, *outer, *(step for s in strides for step in s)]
    return DynamicLoops(len(outer), operand_keys), numbers, units


def emit_dynamic_loop_kernel(module: Module, name: str, lanes: int, loops: DynamicLoops, body: Body) -> None:
    """Arguments: the operands' addresses, the output's last, then the numbers of ``plan_dynamic_loops``."""
    f = module.kernel(name)
    operand_count = len(loops.operands)
    pointers = [f.load_arg(PTR, i) for i in range(operand_count)]
    rows, blocks, middle, inner, total = (f.load_arg(I64, operand_count + i) for i in range(5))
    sizes = [f.load_arg(I64, operand_count + 5 + i) for i in range(loops.outer)]
    first, rank = operand_count + 5 + loops.outer, loops.outer + 2
    strides = [[f.load_arg(I64, first + k * rank + d) for d in range(rank)] for k in range(operand_count)]

    def unit(index: Reg) -> None:
        block, left, now = f.op("urem", index, blocks), f.op("udiv", index, blocks), list(pointers)
        for d in range(loops.outer - 1, -1, -1):
            position = f.op("urem", left, sizes[d])
            left = f.op("udiv", left, sizes[d])
            now = [f.gep(p, f.op("mul", position, s[d])) for p, s in zip(now, strides, strict=True)]
        start = f.op("mul", block, rows)
        end = f.call("llvm.umin.i64", I64, f.op("add", start, rows), middle)

        def row(m: Reg) -> None:
            row_pointers = [f.gep(p, f.op("mul", m, s[-2])) for p, s in zip(now, strides, strict=True)]
            length = f.call("llvm.umin.i64", I64, inner, f.op("sub", total, f.op("mul", m, inner)))
            _Row(f, lanes, loops, row_pointers, [s[-1] for s in strides], body).emit(length)

        f.for_range(start, end, row)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


class _Row:
    """One row: vectorized if every operand is contiguous or broadcast, else scalar."""

    def __init__(
        self, f: Function, lanes: int, loops: DynamicLoops, pointers: list[Reg], steps: list[Reg], body: Body
    ) -> None:
        self.f, self.loops, self.pointers, self.steps, self.body = f, loops, pointers, steps, body
        straight = all(inner != DYNAMIC_STRIDE for *_, inner in loops.operands) and loops.operands[-1][2] != 0
        self.lanes = lanes if straight else 1
        self.masked = self.lanes > 1 and all(item == 4 for _, item, _ in loops.operands)

    def emit(self, length: Reg) -> None:
        f, zero = self.f, const(0, I64)
        unrolled = self.lanes * _UNROLL

        def several(i: Reg) -> None:
            for u in range(_UNROLL):
                self._element(f.add(i, u * self.lanes), self.lanes)

        done = zero
        if self.lanes > 1:
            done = f.mul(f.op("udiv", length, unrolled), unrolled)
            f.for_range(zero, done, several, unrolled)
            full = f.mul(f.op("udiv", length, self.lanes), self.lanes)
            f.for_range(done, full, lambda i: self._element(i, self.lanes), self.lanes)
            done = full
        if self.masked:
            remaining = f.op("sub", length, done)
            f.if_then(
                f.compare("ne", remaining, 0),
                lambda: self._element(done, self.lanes, first_lanes_mask(f, remaining, self.lanes)),
            )
        else:
            f.for_range(done, length, lambda i: self._element(i, 1))

    def _address(self, k: int, at: Reg) -> Reg:
        inner = self.loops.operands[k][2]
        step = self.steps[k] if inner == DYNAMIC_STRIDE else const(inner, I64)
        return self.pointers[k] if inner == 0 else self.f.gep(self.pointers[k], self.f.op("mul", at, step))

    def _element(self, at: Reg, lanes: int, mask: Reg | None = None) -> None:
        f, args = self.f, []
        for k, (kind, _, inner) in enumerate(self.loops.operands[:-1]):
            if inner == 0:
                args.append(f.splat(f.load(kind, self.pointers[k]), lanes))
            elif mask is not None:
                args.append(masked_load(f, vec(lanes, kind), self._address(k, at), mask))
            else:
                args.append(f.load(vec(lanes, kind), self._address(k, at)))
        result, address = self.body(f, args), self._address(len(self.loops.operands) - 1, at)
        if mask is not None:
            masked_store(f, result, address, mask)
        else:
            f.store(result, address)
