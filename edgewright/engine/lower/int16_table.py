"""Functions of 16-bit integers, by a table of what the reference makes of each of them; and of 8-bit ones where what is
made is no byte."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.builder import I64, PTR, Module, Reg
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import ELEMENTS, TABULAR
from edgewright.engine.graph.elementwise_trees import tree_inputs
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Value
from edgewright.ir.numerics import Numerics

_NANOSECONDS = 1.0  # for one element


class Int16Table(Lowering):
    """Trees of vendors' operators that make one tensor of another, element by element."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.table is not None or not all(op.kind in ELEMENTS or op.kind in TABULAR for op in node.ops):
            return None
        found = tree_inputs(node.ops)
        if len(found) != 1 or found[0].constant or found[0].bound != node.out.bound:
            return None
        return cls(node) if all(_small(v) for v in (found[0], node.out)) else None

    def emit(self, context: LoweringContext) -> None:
        value, out = tree_inputs(self.node.ops)[0], context.home(self.node.out)
        data, table = context.home(value), context.weights.add(_table(value, self.node, context.numerics))
        shape = list(out.layout.shape)
        operands = [LoopOperand(llvm_type(h.value), h.layout.item, h.layout.strides) for h in (data, out)]
        for loops, moved in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, loops)

            name = context.kernel("lookup", loops, build)
            slots = [data.at(moved[0]), out.at(moved[1]), table]
            context.step(name, slots, loops.units, math.prod(loops.shape) * _NANOSECONDS)


def _small(value: Value) -> bool:
    return value.dtype is not None and value.dtype.kind in "biu" and value.dtype.itemsize <= 2


def _moved(value: Value) -> int:
    """What is added to a stored value inside the engine."""
    return 0 if value.q is None else storage_offset(value.q)


def _table(value: Value, node: Node, numerics: Numerics) -> Array:
    """What is made of every integer, by its bits; both as the engine stores them."""
    assert value.dtype is not None and node.out.dtype is not None
    size, kind = value.dtype.itemsize, value.dtype
    if kind.kind == "b":
        every = np.arange(256, dtype=np.uint8) != 0
    else:
        bits = np.arange(1 << 8 * size).astype(f"u{size}")
        every = (bits - np.asarray(_moved(value)).astype(bits.dtype)).view(kind)
    made = Executor(Graph("table", [value], [node.out], node.ops), numerics).run([every])[0].reshape(-1)
    return np.ascontiguousarray(made.view(f"u{node.out.dtype.itemsize}") + _moved(node.out)).astype(
        f"u{node.out.dtype.itemsize}"
    )


def _build(module: Module, name: str, loops: LoopNest) -> None:
    """Slots: data, output, table."""
    f = module.kernel(name)
    table = f.load_arg(PTR, 2)
    given, made = loops.operands

    def element(now: list[Reg], at: Reg, width: int) -> None:
        x = f.cast("zext", f.load(given.kind, f.gep(now[0], f.mul(at, given.strides[-1]))), I64)
        found = f.load(made.kind, f.gep(table, f.mul(x, made.item)))
        f.store(found, f.gep(now[1], f.mul(at, made.strides[-1])))

    emit_loop_nest(f, 1, loops, [f.load_arg(PTR, i) for i in range(2)], element)
