"""Integer elementwise operators of other dialects, and lookup tables of int16."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.registry import find_dialect
from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, lane_count, vec
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.fuse import scalar_constants, tree_inputs
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.elementwise import LoopNest, LoopOperand, emit_loop_nest, plan_loops
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise, llvm_type
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import ELEMENTWISE, Emit, FloatConversion, dtype_range, elementwise_operands
from edgewright.ir.numerics import Numerics

# ------------------------------------------------------------------------------------------------------ int elementwise

# Trees of other dialects' integer operators as one elementwise pass, and conversions between float32 and integers.


class IntElementwise(Lowering):
    """Exact integer arithmetic; ``codegen/ranged_int.py`` tracks ranges and picks 32 or 64 bits."""

    exact_reads = True

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(node)
        self.leaves = tree_inputs(node.ops)
        self.text = text

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.table is not None or not all(_emitter(op) for op in node.ops):
            return None
        try:
            return cls(node, _validate(node))
        except IntRangeError:
            return None

    def emit(self, context: LoweringContext) -> None:
        node = self.node

        def body(f: Function, regs: list[Reg]) -> Reg:
            return _emit(f, node, self.leaves, regs)

        storages = [context.storage(v) for v in self.leaves]
        emit_elementwise(context, "int_elementwise", storages, context.storage(node.out), self.text, body)


def _validate(node: Node) -> str:
    """Emit the arithmetic once: raises if it may overflow. The text serves as the kernel's cache key."""
    module = Module()
    f = module.function("trial", [(PTR, "data")])
    inputs = tree_inputs(node.ops)
    if all(v.constant for v in inputs):
        raise IntRangeError("all operands are constant")
    for value in (node.out, *(v for op in node.ops for v in elementwise_operands(op))):  # also constants of one element
        dtype_range(value)  # raises if they are floats
    loaded = [f.load(vec(4, llvm_type(v)), f.arg("data"), 64 * n) for n, v in enumerate(inputs)]
    f.store(_emit(f, node, inputs, loaded), f.arg("data"))
    return module.text()


def _emitter(op: Op) -> Emit | None:
    rule = ELEMENTWISE.get(op.kind)
    return None if rule is None else rule.emit


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)


def _emit(f: Function, node: Node, inputs: Sequence[Value], regs: Sequence[Reg]) -> Reg:
    lanes = int(regs[0].type[1:].split(" ")[0]) if regs[0].type.startswith("<") else 1
    i = RangedIntBuilder(f, lanes)
    values = {v: i.load(x, *dtype_range(v), _storage_offset(v)) for v, x in zip(inputs, regs, strict=True)}
    scalars = scalar_constants([v for op in node.ops for v in elementwise_operands(op)])
    result: RangedInt | None = None
    for op in node.ops:
        args = [values[v] if v in values else i.constant(scalars[v]) for v in elementwise_operands(op)]
        emit, out = _emitter(op), op.outputs[0]
        assert emit is not None and out is not None
        result = emit(i, op, args)
        low, high = dtype_range(out)
        if result.low < low or result.high > high:
            raise IntRangeError(f"{result.low} to {result.high} as {out.dtype}")
        values[out] = result
    assert result is not None and node.out.dtype is not None
    return i.store(result, 8 * node.out.dtype.itemsize, _storage_offset(node.out))


# -------------------------------------------------------------------------------------------------- conversions


class Conversion(DescribedLowering):
    """A conversion between float32 and integers with one scale."""

    def __init__(self, node: Node, description: FloatConversion) -> None:
        super().__init__(node)
        self.data, self.description = description.data, description
        module = Module()
        f = module.function("trial", [(vec(4, llvm_type(self.data)), "x")])
        self.text = f"{self._body(f, [f.arg('x')])} {module.text()}"

    @classmethod
    def accept_description(cls, node: Node, description: FloatConversion) -> Lowering | None:
        sides = [description.data, node.out]
        quantized, floats = sides if description.quantize is None else sides[::-1]
        supported = quantized.q is not None and quantized.q.axis is None and is_float32(floats)
        return cls(node, description) if supported and not description.data.constant else None

    def emit(self, context: LoweringContext) -> None:
        x, out = context.storage(self.data), context.storage(self.node.out)
        emit_elementwise(context, "convert", [x], out, self.text, self._body)

    def _body(self, f: Function, regs: list[Reg]) -> Reg:
        i, x, out = RangedIntBuilder(f, lane_count(regs[0].type)), self.data, self.node.out
        if self.description.dequantize is not None:
            number: Reg = self.description.dequantize(i, i.load(regs[0], *dtype_range(x), _storage_offset(x)))
            return number
        assert self.description.quantize is not None and out.q is not None
        return i.store(self.description.quantize(i, regs[0]), 8 * out.q.dtype.itemsize, _storage_offset(out))


# ---------------------------------------------------------------------------------------------------------- int16 table

# Unary functions of int16 by lookup table; also of 8-bit inputs whose outputs are not 8-bit.
#
# The table holds the reference's result for every input value, so any function is exact.

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
