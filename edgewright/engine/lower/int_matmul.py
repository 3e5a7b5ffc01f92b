"""Products of two computed matrices of integers, with a ``scaling``."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.float_rescale import MAX_EXACT_INT, rescale_float
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import bounds
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.fixed_point_scale import FixedPointScale
from edgewright.ir.float_scale import FloatScale
from edgewright.ir.graph import Value

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "uint16"))


class IntMatMul(Lowering):
    """whole_matmul: each element is a sum along the first one's rows and the second one's columns."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.pair: list[Value] = [node.op.args["self"], node.op.args["other"]]
        self.zeros = [int(z) for z in node.op.args["zeros"]]
        self.depth = int(self.pair[0].bound[-1])
        self.text = self._trial()

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "whole_matmul" or len(node.ops) > 1 or not _one(node.op.args["scaling"]):
            return None
        values = [node.op.args["self"], node.op.args["other"], node.out]
        if any(v.dtype not in _TYPES or v.constant or len(v.bound) < 2 or 0 in v.bound for v in values):
            return None
        try:
            return cls(node)
        except IntRangeError:
            return None

    def _spans(self) -> list[tuple[int, int]]:
        """The least and the largest of each operand, without its zero point."""
        return [(low - z, high - z) for (low, high), z in zip(map(bounds, self.pair), self.zeros, strict=True)]

    def _sum(self) -> tuple[int, int]:
        ends = [x * y for x in self._spans()[0] for y in self._spans()[1]]
        return self.depth * min(*ends, 0), self.depth * max(*ends, 0)

    @property
    def _small(self) -> bool:
        """Products have 32 bits."""
        return all(max(-low, high) <= 1 << 15 for low, high in self._spans())

    @property
    def _kind(self) -> str:
        low, high = self._sum()
        return "i32" if low >= -(1 << 31) and high < 1 << 31 else "i64"

    def _trial(self) -> str:
        """The arithmetic after the sum, written once: raises if there can be none."""
        if max(self._sum()[1], -self._sum()[0]) >= MAX_EXACT_INT:
            raise IntRangeError("sums of more than 52 bits")
        module = Module()
        f = module.function("trial", [(vec(4, self._kind), "x")])
        made = self._ending(f, f.arg("x"))
        return f"{module.text()} {made} {self._kind} {self._small} {[self._shift(v) for v in range(2)]}"

    def _shift(self, which: int) -> int:
        """What is taken off an operand as it is stored."""
        q = self.pair[which].q
        return self.zeros[which] + (0 if q is None else storage_offset(q))

    def _ending(self, f: Function, total: Reg) -> Reg:
        i, scaling, out = RangedIntBuilder(f, lane_count(total.type)), self.node.op.args["scaling"], self.node.out
        assert out.dtype is not None
        if isinstance(scaling, FloatScale):
            made = RangedInt(rescale_float(f, total, scaling), scaling.low, scaling.high)
        else:
            made = i.rescale(RangedInt(total, *self._sum()), scaling.multiplier[0], scaling.shift[0], scaling.rounding)
            made = i.clamp(i.plus(made, scaling.zero), scaling.low, scaling.high)
        return i.store(made, 8 * out.dtype.itemsize, 0 if out.q is None else storage_offset(out.q))

    def emit(self, context: LoweringContext) -> None:
        left, right, out = (context.home(v) for v in (*self.pair, self.node.out))
        shape = list(out.layout.shape)
        steps = (left.layout.strides[-1], right.layout.strides[-2])
        operands = [
            LoopOperand(llvm_type(left.value), left.layout.item, (*_spread(left, shape)[:-1], 0)),
            LoopOperand(llvm_type(right.value), right.layout.item, _columns(right, shape)),
            LoopOperand(llvm_type(out.value), out.layout.item, out.layout.strides),
        ]
        for loops, moved in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                self._emit(module, name, context.isa.lanes, loops, steps)

            name = context.kernel("pairs", (loops, steps, self.depth, self.text), build)
            slots = [h.at(m) for h, m in zip((left, right, out), moved, strict=True)]
            macs = math.prod(shape) * self.depth
            context.step(name, slots, loops.units, macs / 8, macs)

    def _emit(self, module: Module, name: str, lanes: int, loops: LoopNest, steps: tuple[int, int]) -> None:
        f = module.kernel(name)
        pointers = [f.load_arg(PTR, i) for i in range(3)]

        def element(now: list[Reg], at: Reg, width: int) -> None:
            first, column = (
                f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[:2], loops.operands[:2], strict=True)
            )

            def step(_: Reg, carried: list[Reg]) -> list[Reg]:
                row, here, total = carried
                a = f.splat(self._centred(f, f.load(loops.operands[0].kind, row), 0), width)
                b = self._centred(f, f.load(vec(width, loops.operands[1].kind), here), 1)
                if not self._small:
                    a, b = (f.cast("sext", x, total.type) for x in (a, b))
                product = f.cast("sext", f.op("mul", a, b), total.type)
                return [f.gep(row, steps[0]), f.gep(here, steps[1]), f.op("add", total, product)]

            none = const(0, vec(width, self._kind))
            total = f.loop(self.depth, [first, column, none], step)[2]
            f.store(self._ending(f, total), f.gep(now[2], f.mul(at, loops.operands[2].strides[-1])))

        rows, columns = (o.strides[-1] for o in loops.operands[:2])
        emit_loop_nest(
            f, 1 if rows or not columns else lanes, loops, pointers, element
        )  # one column: rows side by side

    def _centred(self, f: Function, x: Reg, which: int) -> Reg:
        value: Value = self.pair[which]
        signed = (
            value.dtype is not None and value.dtype.kind == "i" and (value.q is None or not storage_offset(value.q))
        )
        wide = f.cast("sext" if signed else "zext", x, vec(lane_count(x.type), "i32"))
        return f.add(wide, -self._shift(which))


def _one(scaling: FixedPointScale | FloatScale) -> bool:
    """One factor for all."""
    if isinstance(scaling, FloatScale):
        return len(scaling.factor) == 1 and scaling.is_valid
    return len(scaling.multiplier) == 1


def _spread(home: Storage, shape: list[int]) -> tuple[int, ...]:
    """Strides of a value's rows at the rank of ``shape``, 0 where matrices are repeated."""
    missing = len(shape) - len(home.layout.shape)
    own = (1,) * missing + home.layout.shape
    strides = (0,) * missing + home.layout.strides
    return tuple(0 if n == 1 else s for n, s in zip(own, strides, strict=True))


def _columns(home: Storage, shape: list[int]) -> tuple[int, ...]:
    spread = _spread(home, shape)
    return (*spread[:-2], 0, home.layout.strides[-1])
