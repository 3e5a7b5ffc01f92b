"""Argmax and argmin along a dimension; ties go to the first."""

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
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.engine.lower.scan import scan_dim
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_rules import ArgMaxReduction

_TYPES = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "int32"))


@dataclass(frozen=True)
class ArgReduceSpec:
    """Reduces ``length`` elements, ``step`` bytes apart, for each position of ``loops``."""

    loops: LoopNest
    length: int
    step: int
    signed: bool
    largest: bool


class ArgMax(Lowering):
    """argmax and argmin of any type, with int64 indices."""

    exact_reads = True

    def __init__(self, node: Node, data: Value, axis: int) -> None:
        super().__init__(node)
        self.data, self.axis = data, axis

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        operand = _operand(node.op) if is_unfused(node, "core.argmax", "core.argmin") else None
        return cls(node, *operand) if operand is not None and _fits(*operand, node.out, "int64") else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.storage(self.data), context.storage(self.node.out)
        shape, out_strides, item = out.layout.shape, out.layout.strides, out.layout.item
        if len(shape) == len(data.layout.shape):
            shape, out_strides = _without(shape, self.axis), _without(out_strides, self.axis)
        in_strides = _without(data.layout.strides, self.axis)
        operands = [
            LoopOperand(llvm_type(self.data), data.layout.item, in_strides),
            LoopOperand(f"i{8 * item}", item, out_strides),
        ]
        length, step = data.layout.shape[self.axis], data.layout.strides[self.axis]
        for loops, offsets in plan_loops(list(shape), operands):
            spec = ArgReduceSpec(loops, length, step, _signed(self.data), self.node.op.kind != "core.argmin")

            def build(module: Module, name: str, spec: ArgReduceSpec = spec) -> None:
                _build(module, name, context.isa.lanes, spec)

            slots = [h.at(m) for h, m in zip((data, out), offsets, strict=True)]
            name = context.kernel("argmax", spec, build)
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 0.3)


class Int32ArgMax(ArgMax, DescribedLowering):
    """argmax with int32 indices."""

    @classmethod
    def accept_description(cls, node: Node, description: ArgMaxReduction) -> Lowering | None:
        data, axis = description.data, description.axis
        supported = (is_float32(data) or data.dtype in _TYPES) and _fits(data, axis, node.out, "int32")
        return cls(node, data, axis) if supported else None


def _fits(data: Value, axis: int, out: Value, index_dtype: str) -> bool:
    """Whether a result has the matching shape and type."""
    if not 0 <= axis < len(data.bound) or 0 in data.bound or out.dtype != np.dtype(index_dtype) or out.q is not None:
        return False
    return out.bound in (_without(data.bound, axis), (*data.bound[:axis], 1, *data.bound[axis + 1 :]))


def _operand(op: Op) -> tuple[Value, int] | None:
    """The operand and the dimension; None if the element type is not supported."""
    data, dim = op.args["self"], scan_dim(op)
    supported = data.q is None and data.dtype is not None and has_vector_arithmetic(data.dtype) and not data.constant
    return (data, dim) if supported and dim is not None else None


def _without(numbers: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(numbers) if d != axis)


def _signed(data: Value) -> bool:
    """Whether stored elements are signed; int8 is stored offset to uint8."""
    return data.dtype is not None and data.dtype.kind == "i" and (data.q is None or not storage_offset(data.q))


def _build(module: Module, name: str, lanes: int, spec: ArgReduceSpec) -> None:
    f = module.kernel(name)
    source, target = spec.loops.operands

    def element(pointers: list[Reg], at: Reg, width: int) -> None:
        first = f.gep(pointers[0], f.mul(at, source.strides[-1]))
        start = [f.load(vec(width, source.kind), first), const(0, vec(width, target.kind))]

        def once(i: Reg, carried: list[Reg]) -> list[Reg]:
            index = f.op("add", i, const(1, I64))
            x = f.load(vec(width, source.kind), f.gep(first, f.mul(index, spec.step)))
            better = _better(f, x, carried[0], spec)
            index_vector = f.splat(f.cast("trunc", index, target.kind), width)
            return [f.select(better, x, carried[0]), f.select(better, index_vector, carried[1])]

        winner = f.loop(spec.length - 1, start, once)[1] if spec.length > 1 else start[1]
        f.store(winner, f.gep(pointers[1], f.mul(at, target.strides[-1])))

    emit_loop_nest(f, lanes, spec.loops, [f.load_arg(PTR, i) for i in range(2)], element)


def _better(f: Function, x: Reg, current: Reg, spec: ArgReduceSpec) -> Reg:
    """Whether ``x`` replaces the current element; NaN beats every number, as in numpy."""
    beyond = "gt" if spec.largest else "lt"
    if "float" not in x.type:
        return f.compare(f"{'s' if spec.signed else 'u'}{beyond}", x, current)
    return f.op("and", f.compare(f"u{beyond}", x, current), f.compare("ord", current, current))
