"""Elementwise loops over tensors with dynamic shapes: sizes and strides are kernel arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.elementwise import Body, LoopOperand, collapse_dims
from edgewright.engine.kernels.lane_mask import first_lanes_mask, masked_load, masked_store

_MAX_ROW = 1024  # a single long dimension is split into rows of this length
_UNIT_ELEMENTS = 4096  # elements per work unit, approximately
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
