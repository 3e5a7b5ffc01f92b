"""Vendors' pools and reductions of integers: exact sums, or the largest and smallest, then what becomes of those."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Module, Reg, lane_count
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import affine_of, storage_offset
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.engine.dialects.elementwise import bounds
from edgewright.engine.dialects.reduce import Finish, Folding, finishing, folding
from edgewright.engine.graph.layout import Border, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, plan_loops
from edgewright.engine.kernels.reduce_strided import Combine, emit_strided_reduce
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Value

_PAIRS: dict[str, Combine] = {
    "sum": lambda f, a, b: f.op("add", a, b),
    "max": int_max,
    "min": int_min,
}


@dataclass(frozen=True)
class StridedInput:
    """Where a result's elements are: bytes to the first from the operand's start, strides, how many how far apart."""

    start: int
    strides: tuple[int, ...]
    along: tuple[tuple[int, int], ...]


class IntReduce(Lowering):
    """One operand folded over windows or dimensions."""

    def __init__(self, node: Node, fold: Folding, finish: Finish) -> None:
        super().__init__(node)
        self.fold, self.finish = fold, finish
        self.text = self._trial()

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        finish = finishing(node.op, context.numerics)
        if len(node.ops) > 1 or finish is None:
            return None
        try:
            fold = folding(node.op)
            return cls(node, fold, finish) if _fits(node, fold) else None
        except IntRangeError:
            return None

    def required_border(self) -> tuple[Value, Border] | None:
        top, bottom, left, right = self.fold.pads
        return (self.fold.data, Border(top, bottom, left, right)) if any(self.fold.pads) else None

    def emit(self, context: LoweringContext) -> None:
        node, fold = self.node, self.fold
        data, out = context.home(fold.data), context.home(node.out)
        extras = [context.home(v) for v in fold.extras]
        reach, shape = _reach(data, fold), list(out.layout.shape)
        operands = [LoopOperand(llvm_type(fold.data), data.layout.item, reach.strides)]
        operands += [LoopOperand("i32", 4, _spread(h, shape)) for h in extras]
        operands.append(LoopOperand(llvm_type(node.out), out.layout.item, out.layout.strides))
        lanes, body = context.isa.lanes, self._ending
        for loops, moved in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                emit_strided_reduce(module, name, lanes, loops, reach.along, _widen(fold.data), _PAIRS[fold.how], body)

            name = context.kernel("fold", (loops, reach.along, str(fold.data.dtype), fold.how, self.text), build)
            slots = [h.at(m) for h, m in zip((data, *extras, out), moved, strict=True)]
            slots[0] = data.at(reach.start + moved[0])
            work = math.prod(loops.shape) * math.prod(n for n, _ in reach.along)
            context.step(name, slots, loops.units, work * 0.1)

    def _trial(self) -> str:
        """The arithmetic after the fold, written once: raises if there can be none."""
        module, fold = Module(), self.fold
        f = module.function("trial", [("<4 x i32>", f"x{n}") for n in range(1 + len(fold.extras))])
        low, high = bounds(fold.data)
        if fold.how == "sum" and max(-low, high) * fold.count >= 1 << 31 and self.node.out.dtype != np.dtype(np.int32):
            raise IntRangeError("a sum of more than 32 bits")
        made = self._ending(f, [f.arg(f"x{n}") for n in range(1 + len(fold.extras))])
        return f"{module.text()} {made}"

    def _ending(self, f: Function, given: list[Reg]) -> Reg:
        """From what was folded to what is stored."""
        i, fold, out = RangedIntBuilder(f, lane_count(given[0].type)), self.fold, self.node.out
        low, high = bounds(fold.data)
        times = fold.count if fold.how == "sum" else 1
        own = f.add(given[0], -_stored(fold.data) * times)
        low, high = low * times, high * times
        if low < -(1 << 31) or high >= 1 << 31:
            low, high = -(1 << 31), (1 << 31) - 1  # what is beyond is lost, as in numpy
        made = self.finish(i, self.node.op, RangedInt(own, low, high), given[1:])
        least, most = bounds(out)
        if made.low < least or made.high > most:
            raise IntRangeError(f"{made.low} to {made.high} as {out.dtype}")
        assert out.dtype is not None
        return i.store(made, 8 * out.dtype.itemsize, _stored(out))


def _spread(home: Storage, shape: list[int]) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(home.layout.shape, home.layout.strides, strict=True))


def _reach(data: Storage, fold: Folding) -> StridedInput:
    layout = data.layout
    if fold.window is not None:
        first, *inner, last = layout.strides
        start = -fold.pads[0] * inner[0] - fold.pads[2] * inner[-1]
        steps = (first, *(n * s for n, s in zip(fold.stride, inner, strict=True)), last)
        return StridedInput(start, steps, tuple(zip(fold.window, inner, strict=True)))
    along = tuple((layout.shape[a], layout.strides[a]) for a in fold.axes)
    kept = [0 if d in fold.axes else s for d, s in enumerate(layout.strides)]
    strides = tuple(kept) if fold.keep else tuple(s for d, s in enumerate(kept) if d not in fold.axes)
    return StridedInput(0, strides, along)


def _fits(node: Node, fold: Folding) -> bool:
    """Padding holds what the operator counts as nothing, and results are as many as the graph says."""
    q = fold.data.q
    if any(fold.pads) and (q is None or affine_of(q).zero - storage_offset(q) != fold.zero):
        return False
    return not (fold.window is not None and (fold.data.bound[-1:] != node.out.bound[-1:] or node.out.bound[0] > 1024))


def _stored(value: Value) -> int:
    """What is added to a stored value inside the engine."""
    return 0 if value.q is None else storage_offset(value.q)


def _widen(value: Value) -> Callable[[Function, Reg], Reg]:
    signed = bounds(value)[0] + _stored(value) < 0
    return lambda f, x: f.cast("sext" if signed else "zext", x, x.type.replace(llvm_type(value), "i32"))
