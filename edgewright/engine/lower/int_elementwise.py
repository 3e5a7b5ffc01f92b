"""Trees of other dialects' integer operators as one elementwise pass, and conversions between float32 and integers."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, lane_count, vec
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.elementwise_trees import scalar_constants, tree_inputs
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise, llvm_type
from edgewright.ir.graph import Op, Value
from edgewright.ir.int_arithmetic import IntRangeError, RangedInt
from edgewright.ir.int_rules import ELEMENTWISE, Emit, FloatConversion, dtype_range, elementwise_operands


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
