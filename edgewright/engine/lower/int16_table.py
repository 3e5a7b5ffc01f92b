"""Unary functions of int16 by lookup table; also of 8-bit inputs whose outputs are not 8-bit.

The table holds the reference's result for every input value, so any function is exact.
"""

from __future__ import annotations

import math

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.codegen.builder import I64, PTR, Module, Reg
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.elementwise_trees import tree_inputs
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import llvm_type
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Value
from edgewright.ir.int_rules import ELEMENTWISE
from edgewright.ir.numerics import Numerics

_NANOSECONDS = 1.0  # per element


class Int16Table(Lowering):
    """A tree of elementwise operators of other dialects with a single non-constant input."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.table is not None or not all(op.kind in ELEMENTWISE for op in node.ops):
            return None
        inputs = tree_inputs(node.ops)
        if len(inputs) != 1 or inputs[0].constant or inputs[0].bound != node.out.bound:
            return None
        return cls(node) if all(_is_small_int(v) for v in (inputs[0], node.out)) else None

    def emit(self, context: LoweringContext) -> None:
        value, out = tree_inputs(self.node.ops)[0], context.storage(self.node.out)
        data, table = context.storage(value), context.weights.add(_table(value, self.node, context.numerics))
        shape = list(out.layout.shape)
        operands = [LoopOperand(llvm_type(h.value), h.layout.item, h.layout.strides) for h in (data, out)]
        for loops, offsets in plan_loops(shape, operands):

            def build(module: Module, name: str, loops: LoopNest = loops) -> None:
                _build(module, name, loops)

            name = context.kernel("int16_table", loops, build)
            slots = [data.at(offsets[0]), out.at(offsets[1]), table]
            context.step(name, slots, loops.units, math.prod(loops.shape) * _NANOSECONDS)


def _is_small_int(value: Value) -> bool:
    return value.dtype is not None and value.dtype.kind in "biu" and value.dtype.itemsize <= 2


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)


def _table(value: Value, node: Node, numerics: Numerics) -> Array:
    """The reference's result for every input bit pattern, in the engine's representation."""
    assert value.dtype is not None and node.out.dtype is not None
    size, dtype = value.dtype.itemsize, value.dtype
    if dtype.kind == "b":
        inputs = np.arange(256, dtype=np.uint8) != 0
    else:
        bits = np.arange(1 << 8 * size).astype(f"u{size}")
        inputs = (bits - np.asarray(_storage_offset(value)).astype(bits.dtype)).view(dtype)
    executor = Executor(Graph("table", [value], [node.out], node.ops), numerics, find_dialect=find_dialect)
    outputs = executor.run([inputs])[0].reshape(-1)
    return np.ascontiguousarray(outputs.view(f"u{node.out.dtype.itemsize}") + _storage_offset(node.out)).astype(
        f"u{node.out.dtype.itemsize}"
    )


def _build(module: Module, name: str, loops: LoopNest) -> None:
    """Emit the kernel. Slots: data, output, table."""
    f = module.kernel(name)
    table = f.load_arg(PTR, 2)
    source, target = loops.operands

    def element(now: list[Reg], at: Reg, width: int) -> None:
        x = f.cast("zext", f.load(source.kind, f.gep(now[0], f.mul(at, source.strides[-1]))), I64)
        value = f.load(target.kind, f.gep(table, f.mul(x, target.item)))
        f.store(value, f.gep(now[1], f.mul(at, target.strides[-1])))

    emit_loop_nest(f, 1, loops, [f.load_arg(PTR, i) for i in range(2)], element)
