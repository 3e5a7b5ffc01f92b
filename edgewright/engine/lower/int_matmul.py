"""Integer matrix products of two computed operands, requantized by a ``scaling``."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, lane_count, vec
from edgewright.engine.codegen.float_rescale import MAX_EXACT_INT, rescale_float
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.graph import Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import dtype_range
from edgewright.ir.requant_scale import FixedPointScale, FloatScale

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "uint16"))


class IntMatMul(Lowering):
    """int_matmul: sums of products along the rows of the first and the columns of the second operand."""

    exact_reads = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.operands: list[Value] = [node.op.args["self"], node.op.args["other"]]
        self.zeros = [int(z) for z in node.op.args["zeros"]]
        self.depth = int(self.operands[0].bound[-1])
        self.text = self._validate()

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "core.int_matmul" or len(node.ops) > 1 or not _is_per_tensor(node.op.args["scaling"]):
            return None
        values = [node.op.args["self"], node.op.args["other"], node.out]
        if any(v.dtype not in _TYPES or v.constant or len(v.bound) < 2 or 0 in v.bound for v in values):
            return None
        try:
            return cls(node)
        except IntRangeError:
            return None

    def _ranges(self) -> list[tuple[int, int]]:
        """The range of each operand, with its zero point subtracted."""
        return [(low - z, high - z) for (low, high), z in zip(map(dtype_range, self.operands), self.zeros, strict=True)]

    def _sum_range(self) -> tuple[int, int]:
        """The range of the accumulator."""
        products = [x * y for x in self._ranges()[0] for y in self._ranges()[1]]
        return self.depth * min(*products, 0), self.depth * max(*products, 0)

    @property
    def _fits_int16(self) -> bool:
        """Whether products of two operands fit in 32 bits."""
        return all(max(-low, high) <= 1 << 15 for low, high in self._ranges())

    @property
    def _accumulator_type(self) -> str:
        """The LLVM type of the accumulator."""
        low, high = self._sum_range()
        return "i32" if low >= -(1 << 31) and high < 1 << 31 else "i64"

    def _validate(self) -> str:
        """Emit the requantization once: raises if it overflows. The text serves as a cache key."""
        if max(self._sum_range()[1], -self._sum_range()[0]) >= MAX_EXACT_INT:
            raise IntRangeError("sum exceeds 52 bits")
        module = Module()
        f = module.function("trial", [(vec(4, self._accumulator_type), "x")])
        result = self._requantize(f, f.arg("x"))
        offsets = [self._offset(v) for v in range(2)]
        return f"{module.text()} {result} {self._accumulator_type} {self._fits_int16} {offsets}"

    def _offset(self, index: int) -> int:
        """What is subtracted from a stored operand."""
        q = self.operands[index].q
        return self.zeros[index] + (0 if q is None else storage_offset(q))

    def _requantize(self, f: Function, total: Reg) -> Reg:
        i, scaling, out = RangedIntBuilder(f, lane_count(total.type)), self.node.op.args["scaling"], self.node.out
        assert out.dtype is not None
        if isinstance(scaling, FloatScale):
            result = RangedInt(rescale_float(f, total, scaling), scaling.low, scaling.high)
        else:
            result = i.rescale(
                RangedInt(total, *self._sum_range()), scaling.multiplier[0], scaling.shift[0], scaling.rounding
            )
            result = i.clamp(i.plus(result, scaling.zero), scaling.low, scaling.high)
        return i.store(result, 8 * out.dtype.itemsize, 0 if out.q is None else storage_offset(out.q))

    def emit(self, context: LoweringContext) -> None:
        left, right, out = (context.storage(v) for v in (*self.operands, self.node.out))
        shape = list(out.layout.shape)
        steps = (left.layout.strides[-1], right.layout.strides[-2])
        operands = [
            LoopOperand(llvm_type(left.value), left.layout.item, (*_broadcast_strides(left, shape)[:-1], 0)),
            LoopOperand(llvm_type(right.value), right.layout.item, _column_strides(right, shape)),
            LoopOperand(llvm_type(out.value), out.layout.item, out.layout.strides),
        ]
        for loops, offsets in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                self._emit(module, name, context.isa.lanes, loops, steps)

            name = context.kernel("int_matmul", (loops, steps, self.depth, self.text), build)
            slots = [h.at(m) for h, m in zip((left, right, out), offsets, strict=True)]
            macs = math.prod(shape) * self.depth
            context.step(name, slots, loops.units, macs / 8, macs)

    def _emit(self, module: Module, name: str, lanes: int, loops: LoopNest, steps: tuple[int, int]) -> None:
        f = module.kernel(name)
        pointers = [f.load_arg(PTR, i) for i in range(3)]

        def element(now: list[Reg], at: Reg, width: int) -> None:
            row_start, column = (
                f.gep(p, f.mul(at, o.strides[-1])) for p, o in zip(now[:2], loops.operands[:2], strict=True)
            )

            def step(_: Reg, state: list[Reg]) -> list[Reg]:
                row, column_now, total = state
                a = f.splat(self._widen(f, f.load(loops.operands[0].kind, row), 0), width)
                b = self._widen(f, f.load(vec(width, loops.operands[1].kind), column_now), 1)
                if not self._fits_int16:
                    a, b = (f.cast("sext", x, total.type) for x in (a, b))
                product = f.cast("sext", f.op("mul", a, b), total.type)
                return [f.gep(row, steps[0]), f.gep(column_now, steps[1]), f.op("add", total, product)]

            zero = const(0, vec(width, self._accumulator_type))
            total = f.loop(self.depth, [row_start, column, zero], step)[2]
            f.store(self._requantize(f, total), f.gep(now[2], f.mul(at, loops.operands[2].strides[-1])))

        rows, columns = (o.strides[-1] for o in loops.operands[:2])
        emit_loop_nest(
            f, 1 if rows or not columns else lanes, loops, pointers, element
        )  # with one column, vectorize over rows

    def _widen(self, f: Function, x: Reg, index: int) -> Reg:
        value: Value = self.operands[index]
        signed = (
            value.dtype is not None and value.dtype.kind == "i" and (value.q is None or not storage_offset(value.q))
        )
        wide = f.cast("sext" if signed else "zext", x, vec(lane_count(x.type), "i32"))
        return f.add(wide, -self._offset(index))


def _is_per_tensor(scaling: FixedPointScale | FloatScale) -> bool:
    """Whether one factor applies to all channels."""
    if isinstance(scaling, FloatScale):
        return len(scaling.factor) == 1 and scaling.is_valid
    return len(scaling.multiplier) == 1


def _broadcast_strides(storage: Storage, shape: list[int]) -> tuple[int, ...]:
    """Strides of an operand at the rank of ``shape``; 0 where it is broadcast."""
    missing = len(shape) - len(storage.layout.shape)
    sizes = (1,) * missing + storage.layout.shape
    strides = (0,) * missing + storage.layout.strides
    return tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))


def _column_strides(storage: Storage, shape: list[int]) -> tuple[int, ...]:
    strides = _broadcast_strides(storage, shape)
    return (*strides[:-2], 0, storage.layout.strides[-1])
