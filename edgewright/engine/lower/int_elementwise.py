"""Trees of vendor integer operators as one fused elementwise pass, and conversions between float32 and integers."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.backends.qualcomm.dialect import int_rules as qnn_elementwise
from edgewright.backends.samsung.dialect import int_rules as enn_elementwise
from edgewright.backends.samsung.dialect.numerics import inputs_of, result_of
from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, lane_count, vec
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import ELEMENTWISE, dtype_range, elementwise_operands
from edgewright.engine.graph.elementwise_trees import scalar_constants, tree_inputs
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise, llvm_type
from edgewright.ir.graph import Value


class IntElementwise(Lowering):
    """Exact integer arithmetic; ``codegen/ranged_int.py`` tracks ranges and picks 32 or 64 bits."""

    exact_reads = True

    def __init__(self, node: Node, text: str) -> None:
        super().__init__(node)
        self.leaves = tree_inputs(node.ops)
        self.text = text

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.table is not None or not all(op.kind in ELEMENTWISE for op in node.ops):
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
    if node.out.dtype is None or any(v.dtype is None or v.dtype.kind not in "biu" for v in (*inputs, node.out)):
        raise IntRangeError("float operand")
    loaded = [f.load(vec(4, llvm_type(v)), f.arg("data"), 64 * n) for n, v in enumerate(inputs)]
    f.store(_emit(f, node, inputs, loaded), f.arg("data"))
    return module.text()


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
        result, out = ELEMENTWISE[op.kind](i, op, args), op.outputs[0]
        assert out is not None
        low, high = dtype_range(out)
        if result.low < low or result.high > high:
            raise IntRangeError(f"{result.low} to {result.high} as {out.dtype}")
        values[out] = result
    assert result is not None and node.out.dtype is not None
    return i.store(result, 8 * node.out.dtype.itemsize, _storage_offset(node.out))


# -------------------------------------------------------------------------------------------------- conversions


_QNN_CONVERSIONS = ("qnn.Quantize", "qnn.Dequantize", "qnn.Convert", "qnn.Cast")


class QnnConversion(Lowering):
    """Quantize, Dequantize, Convert and Cast between float32 and integers with one scale."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in _QNN_CONVERSIONS or len(node.ops) > 1:
            return None
        operand_and_result = [node.op.args["inputs"][0], node.out]
        quantized, floats = operand_and_result if operand_and_result[1].q is None else operand_and_result[::-1]
        supported = (
            quantized.q is not None
            and quantized.q.axis is None
            and quantized.q.dtype.itemsize <= 2
            and is_float32(floats)
        )
        return cls(node) if supported and not operand_and_result[0].constant else None

    def emit(self, context: LoweringContext) -> None:
        x, out = self.node.op.args["inputs"][0], self.node.out

        def body(f: Function, regs: list[Reg]) -> Reg:
            i = RangedIntBuilder(f, lane_count(regs[0].type))
            if out.q is None:
                return qnn_elementwise.dequantize(i, i.load(regs[0], *dtype_range(x), _storage_offset(x)), x)
            return i.store(qnn_elementwise.quantize(i, regs[0], out), 8 * out.q.dtype.itemsize, _storage_offset(out))

        emit_elementwise(context, "qnn_convert", [context.storage(x)], context.storage(out), (x.q, out.q), body)


class EnnConversion(Lowering):
    """QUANTIZE and DEQUANTIZE with one scale."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in ("enn.QUANTIZE", "enn.DEQUANTIZE") or len(node.ops) > 1:
            return None
        operand_and_result = [inputs_of(node.op)[0], result_of(node.op)]
        quantized, floats = operand_and_result if node.op.kind.endswith("DEQUANTIZE") else operand_and_result[::-1]
        supported = (
            quantized.q is not None
            and quantized.q.axis is None
            and is_float32(floats)
            and not operand_and_result[0].constant
        )
        return cls(node) if supported else None

    def emit(self, context: LoweringContext) -> None:
        x, out = inputs_of(self.node.op)[0], result_of(self.node.op)

        def body(f: Function, regs: list[Reg]) -> Reg:
            i = RangedIntBuilder(f, lane_count(regs[0].type))
            if out.q is None:
                return enn_elementwise.dequantize(i, i.load(regs[0], *dtype_range(x), _storage_offset(x)), x)
            quantized = enn_elementwise.quantize(i, regs[0], out)
            return i.store(quantized, 8 * out.q.dtype.itemsize, _storage_offset(out))

        key = (x.q, out.q)
        emit_elementwise(context, "enn_convert", [context.storage(x)], context.storage(out), key, body)
