"""Element by element, over tensors whose sizes and strides are known when the graph runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.kernels.elementwise import Body, LoopOperand, collapse_dims
from edgewright.engine.kernels.lane_mask import first_lanes_mask, masked_load, masked_store

_MAX_ROW = 1024  # elements that a single long dimension is cut in
_UNIT_ELEMENTS = 4096  # elements of a unit, about
_UNROLL = 4
DYNAMIC_STRIDE = -1  # bytes from an element to the next that are known when the graph runs


@dataclass(frozen=True)
class DynamicLoops:
    """What code depends on: ``outer`` dimensions around rows, and operands by type, size and ``inner`` stride.

    The inputs come first, then the output.
    """

    outer: int
    operands: tuple[tuple[str, int, int], ...]


def plan_dynamic_loops(shape: Sequence[int], operands: Sequence[LoopOperand]) -> tuple[DynamicLoops, list[int], int]:
    """Loops over all elements, the numbers their kernel is given after the operands' addresses, and how many units.

    A unit is some rows of ``inner`` elements. A tensor that is one long row is cut; its last piece is shorter.
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
    made = tuple(
        (o.kind, o.item, s[-1] if s[-1] in (0, o.item) else DYNAMIC_STRIDE)
        for o, s in zip(operands, strides, strict=True)
    )
    units = blocks
    for n in outer:
        units *= n
    numbers = [rows, blocks, middle, inner, total, *outer, *(step for s in strides for step in s)]
    return DynamicLoops(len(outer), made), numbers, units


def emit_dynamic_loop_kernel(module: Module, name: str, lanes: int, loops: DynamicLoops, body: Body) -> None:
    """Slots: the operands' addresses, the output's last, then ``plan_dynamic_loops``'s numbers."""
    f = module.kernel(name)
    made = len(loops.operands)
    places = [f.load_arg(PTR, i) for i in range(made)]
    rows, blocks, middle, inner, total = (f.load_arg(I64, made + i) for i in range(5))
    sizes = [f.load_arg(I64, made + 5 + i) for i in range(loops.outer)]
    first, rank = made + 5 + loops.outer, loops.outer + 2
    strides = [[f.load_arg(I64, first + k * rank + d) for d in range(rank)] for k in range(made)]

    def unit(index: Reg) -> None:
        block, left, now = f.op("urem", index, blocks), f.op("udiv", index, blocks), list(places)
        for d in range(loops.outer - 1, -1, -1):
            here = f.op("urem", left, sizes[d])
            left = f.op("udiv", left, sizes[d])
            now = [f.gep(p, f.op("mul", here, s[d])) for p, s in zip(now, strides, strict=True)]
        start = f.op("mul", block, rows)
        end = f.call("llvm.umin.i64", I64, f.op("add", start, rows), middle)

        def row(m: Reg) -> None:
            there = [f.gep(p, f.op("mul", m, s[-2])) for p, s in zip(now, strides, strict=True)]
            length = f.call("llvm.umin.i64", I64, inner, f.op("sub", total, f.op("mul", m, inner)))
            _Row(f, lanes, loops, there, [s[-1] for s in strides], body).emit(length)

        f.for_range(start, end, row)

    f.for_range(f.arg("begin"), f.arg("end"), unit)
    f.ret()


class _Row:
    """One row: vectors where every operand lies side by side or is one number, else elements one by one."""

    def __init__(
        self, f: Function, lanes: int, loops: DynamicLoops, places: list[Reg], steps: list[Reg], body: Body
    ) -> None:
        self.f, self.loops, self.places, self.steps, self.body = f, loops, places, steps, body
        straight = all(inner != DYNAMIC_STRIDE for *_, inner in loops.operands) and loops.operands[-1][2] != 0
        self.lanes = lanes if straight else 1
        self.masked = self.lanes > 1 and all(item == 4 for _, item, _ in loops.operands)

    def emit(self, length: Reg) -> None:
        f, zero = self.f, const(0, I64)
        many = self.lanes * _UNROLL

        def several(i: Reg) -> None:
            for u in range(_UNROLL):
                self._element(f.add(i, u * self.lanes), self.lanes)

        done = zero
        if self.lanes > 1:
            done = f.mul(f.op("udiv", length, many), many)
            f.for_range(zero, done, several, many)
            whole = f.mul(f.op("udiv", length, self.lanes), self.lanes)
            f.for_range(done, whole, lambda i: self._element(i, self.lanes), self.lanes)
            done = whole
        if self.masked:
            left = f.op("sub", length, done)
            f.if_then(
                f.compare("ne", left, 0), lambda: self._element(done, self.lanes, first_lanes_mask(f, left, self.lanes))
            )
        else:
            f.for_range(done, length, lambda i: self._element(i, 1))

    def _place(self, k: int, at: Reg) -> Reg:
        inner = self.loops.operands[k][2]
        step = self.steps[k] if inner == DYNAMIC_STRIDE else const(inner, I64)
        return self.places[k] if inner == 0 else self.f.gep(self.places[k], self.f.op("mul", at, step))

    def _element(self, at: Reg, lanes: int, mask: Reg | None = None) -> None:
        f, given = self.f, []
        for k, (kind, _, inner) in enumerate(self.loops.operands[:-1]):
            if inner == 0:
                given.append(f.splat(f.load(kind, self.places[k]), lanes))
            elif mask is not None:
                given.append(masked_load(f, vec(lanes, kind), self._place(k, at), mask))
            else:
                given.append(f.load(vec(lanes, kind), self._place(k, at)))
        result, place = self.body(f, given), self._place(len(self.loops.operands) - 1, at)
        if mask is not None:
            masked_store(f, result, place, mask)
        else:
            f.store(result, place)
