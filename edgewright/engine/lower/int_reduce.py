"""Integer pools and reductions of other dialects: an exact sum, maximum or minimum, then a requantization."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Module, Reg, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import affine_of, storage_offset
from edgewright.engine.codegen.vector import int_max, int_min
from edgewright.engine.graph.layout import Border, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, plan_loops
from edgewright.engine.kernels.reduce import Combine, emit_strided_reduce
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import IntReduction, dtype_range

_COMBINE: dict[str, Combine] = {
    "sum": lambda f, a, b: f.op("add", a, b),
    "max": int_max,
    "min": int_min,
}


@dataclass(frozen=True)
class StridedInput:
    """The elements of one result: start offset, strides per result, and (count, stride) of each reduced dimension."""

    start: int
    strides: tuple[int, ...]
    reduced: tuple[tuple[int, int], ...]


class IntReduce(DescribedLowering):
    """A reduction of one operand over windows or dimensions."""

    exact_reads = False

    def __init__(self, node: Node, reduction: IntReduction) -> None:
        super().__init__(node)
        self.reduction = reduction
        self.text = self._validate()

    @classmethod
    def accept_description(cls, node: Node, description: IntReduction) -> Lowering | None:
        return cls(node, description) if _fits(node, description) else None

    def required_border(self) -> tuple[Value, Border] | None:
        top, bottom, left, right = self.reduction.pads
        return (self.reduction.data, Border(top, bottom, left, right)) if any(self.reduction.pads) else None

    def emit(self, context: LoweringContext) -> None:
        node, reduction = self.node, self.reduction
        data, out = context.storage(reduction.data), context.storage(node.out)
        extras = [context.storage(v) for v in reduction.extras]
        strided, shape = _strided_input(data, reduction), list(out.layout.shape)
        operands = [LoopOperand(llvm_type(reduction.data), data.layout.item, strided.strides)]
        operands += [LoopOperand("i32", 4, _broadcast_strides(h)) for h in extras]
        operands.append(LoopOperand(llvm_type(node.out), out.layout.item, out.layout.strides))
        lanes, body = context.isa.lanes, self._finish_body
        for loops, offsets in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                emit_strided_reduce(
                    module, name, lanes, loops, strided.reduced, _widen(reduction.data), _COMBINE[reduction.kind], body
                )

            name = context.kernel(
                "int_reduce", (loops, strided.reduced, str(reduction.data.dtype), reduction.kind, self.text), build
            )
            slots = [h.at(m) for h, m in zip((data, *extras, out), offsets, strict=True)]
            slots[0] = data.at(strided.start + offsets[0])
            work = math.prod(loops.shape) * math.prod(n for n, _ in strided.reduced)
            context.step(name, slots, loops.units, work * 0.1)

    def _validate(self) -> str:
        """Emit the arithmetic after the reduction once: raises if it may overflow."""
        module, reduction = Module(), self.reduction
        f = module.function("trial", [("<4 x i32>", f"x{n}") for n in range(1 + len(reduction.extras))])
        low, high = dtype_range(reduction.data)
        if (
            reduction.kind == "sum"
            and max(-low, high) * reduction.count >= 1 << 31
            and (self.node.out.dtype != np.dtype(np.int32) or reduction.finish is not None)
        ):
            raise IntRangeError("sum exceeds 32 bits")
        result = self._finish_body(f, [f.arg(f"x{n}") for n in range(1 + len(reduction.extras))])
        return f"{module.text()} {result}"

    def _finish_body(self, f: Function, regs: list[Reg]) -> Reg:
        """From the reduced value to the stored result."""
        i, reduction, out = RangedIntBuilder(f, lane_count(regs[0].type)), self.reduction, self.node.out
        low, high = dtype_range(reduction.data)
        count = reduction.count if reduction.kind == "sum" else 1
        reduced = f.add(regs[0], -_storage_offset(reduction.data) * count)
        low, high = low * count, high * count
        if low < -(1 << 31) or high >= 1 << 31:
            low, high = -(1 << 31), (1 << 31) - 1  # wraps, as in numpy
        result = RangedInt(reduced, low, high)
        if reduction.finish is not None:
            result = reduction.finish(i, result, [_bounded(*x) for x in zip(regs[1:], reduction.extras, strict=True)])
        minimum, maximum = dtype_range(out)
        if result.low < minimum or result.high > maximum:
            raise IntRangeError(f"{result.low} to {result.high} as {out.dtype}")
        assert out.dtype is not None
        return i.store(result, 8 * out.dtype.itemsize, _storage_offset(out))


def _bounded(reg: Reg, constant: Value) -> RangedInt:
    """Elements of a constant."""
    assert constant.data is not None
    return RangedInt(reg, int(constant.data.min()), int(constant.data.max()))


def _broadcast_strides(storage: Storage) -> tuple[int, ...]:
    return tuple(0 if n == 1 else s for n, s in zip(storage.layout.shape, storage.layout.strides, strict=True))


def _strided_input(data: Storage, reduction: IntReduction) -> StridedInput:
    layout = data.layout
    if reduction.window is not None:
        first, *inner, last = layout.strides
        start = -reduction.pads[0] * inner[0] - reduction.pads[2] * inner[-1]
        strides = (first, *(n * s for n, s in zip(reduction.stride, inner, strict=True)), last)
        return StridedInput(start, strides, tuple(zip(reduction.window, inner, strict=True)))
    reduced = tuple((layout.shape[a], layout.strides[a]) for a in reduction.axes)
    outer = [0 if d in reduction.axes else s for d, s in enumerate(layout.strides)]
    strides = tuple(outer) if reduction.keepdims else tuple(s for d, s in enumerate(outer) if d not in reduction.axes)
    return StridedInput(0, strides, reduced)


def _fits(node: Node, reduction: IntReduction) -> bool:
    """Whether int32 holds every element, padding holds the neutral element and the output has the matching shape."""
    q, (low, high) = reduction.data.q, dtype_range(reduction.data)
    if low < -(1 << 31) or high >= 1 << 31:
        return False
    if any(reduction.pads) and (q is None or affine_of(q).zero - storage_offset(q) != reduction.zero):
        return False
    return not (
        reduction.window is not None and (reduction.data.bound[-1:] != node.out.bound[-1:] or node.out.bound[0] > 1024)
    )


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)


def _widen(value: Value) -> Callable[[Function, Reg], Reg]:
    signed = dtype_range(value)[0] + _storage_offset(value) < 0
    return lambda f, x: f.cast("sext" if signed else "zext", x, x.type.replace(llvm_type(value), "i32"))
