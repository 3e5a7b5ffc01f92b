"""Where along a dimension the largest or the smallest element is, the first of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.codegen.typed_arith import has_vector_arithmetic
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.engine.lower.scan import scan_dim
from edgewright.ir.graph import Op, Value

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "int32"))


@dataclass(frozen=True)
class ArgReduceSpec:
    """``length`` elements, each ``step`` bytes further than the one before, for each that ``loops`` have."""

    loops: LoopNest
    length: int
    step: int
    signed: bool
    largest: bool


class ArgMax(Lowering):
    """TOSA's argmax, whose places have 32 bits; argmax and argmin of any type."""

    exact_reads = True

    def __init__(self, node: Node, data: Value, axis: int) -> None:
        super().__init__(node)
        self.data, self.axis = data, axis

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        found = _operand(node.op) if is_unfused(node, "tosa.argmax", "argmax", "argmin") else None
        if found is None or node.out.q is not None:
            return None
        data, axis, places = found
        if not 0 <= axis < len(data.bound) or 0 in data.bound or node.out.dtype != np.dtype(places):
            return None
        lies = node.out.bound in (_without(data.bound, axis), (*data.bound[:axis], 1, *data.bound[axis + 1 :]))
        return cls(node, data, axis) if lies else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.data), context.home(self.node.out)
        shape, ends, item = out.layout.shape, out.layout.strides, out.layout.item
        if len(shape) == len(data.layout.shape):
            shape, ends = _without(shape, self.axis), _without(ends, self.axis)
        starts = _without(data.layout.strides, self.axis)
        operands = [
            LoopOperand(llvm_type(self.data), data.layout.item, starts),
            LoopOperand(f"i{8 * item}", item, ends),
        ]
        length, step = data.layout.shape[self.axis], data.layout.strides[self.axis]
        for loops, moved in plan_loops(list(shape), operands):
            best = ArgReduceSpec(loops, length, step, _signed(self.data), self.node.op.kind != "argmin")

            def build(module: Module, name: str, best: ArgReduceSpec = best) -> None:
                _build(module, name, context.isa.lanes, best)

            slots = [h.at(m) for h, m in zip((data, out), moved, strict=True)]
            name = context.kernel("argmax", best, build)
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 0.3)


def _operand(op: Op) -> tuple[Value, int, str] | None:
    """What is looked through, along which dimension, and the type of places; None if no code knows its elements."""
    if op.kind == "tosa.argmax":
        data: Value = op.args["input"]
        return (data, int(op.args["axis"]), "int32") if is_float32(data) or data.dtype in _TYPES else None
    data, dim = op.args["self"], scan_dim(op)
    known = data.q is None and data.dtype is not None and has_vector_arithmetic(data.dtype) and not data.constant
    return (data, dim, "int64") if known and dim is not None else None


def _without(numbers: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(numbers) if d != axis)


def _signed(data: Value) -> bool:
    """Moved bytes have no sign."""
    return data.dtype is not None and data.dtype.kind == "i" and (data.q is None or not storage_offset(data.q))


def _build(module: Module, name: str, lanes: int, best: ArgReduceSpec) -> None:
    f = module.kernel(name)
    given, made = best.loops.operands

    def element(now: list[Reg], at: Reg, width: int) -> None:
        place = f.gep(now[0], f.mul(at, given.strides[-1]))
        start = [f.load(vec(width, given.kind), place), const(0, vec(width, made.kind))]

        def once(i: Reg, held: list[Reg]) -> list[Reg]:
            index = f.op("add", i, const(1, I64))
            x = f.load(vec(width, given.kind), f.gep(place, f.mul(index, best.step)))
            better = _better(f, x, held[0], best)
            here = f.splat(f.cast("trunc", index, made.kind), width)
            return [f.select(better, x, held[0]), f.select(better, here, held[1])]

        found = f.loop(best.length - 1, start, once)[1] if best.length > 1 else start[1]
        f.store(found, f.gep(now[1], f.mul(at, made.strides[-1])))

    emit_loop_nest(f, lanes, best.loops, [f.load_arg(PTR, i) for i in range(2)], element)


def _better(f: Function, x: Reg, held: Reg, best: ArgReduceSpec) -> Reg:
    """Larger, or smaller; of real numbers what is none is the best."""
    beyond = "gt" if best.largest else "lt"
    if "float" not in x.type:
        return f.compare(f"{'s' if best.signed else 'u'}{beyond}", x, held)
    return f.op("and", f.compare(f"u{beyond}", x, held), f.compare("ord", held, held))  # or x is none, and held is one
