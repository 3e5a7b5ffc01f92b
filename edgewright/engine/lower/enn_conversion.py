"""ENN's QUANTIZE and DEQUANTIZE between float32 and integers."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import dtype_range
from edgewright.engine.dialects.enn_elementwise import dequantize, quantize
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.enn.numerics import inputs_of, result_of
from edgewright.ir.graph import Value


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
                return dequantize(i, i.load(regs[0], *dtype_range(x), _storage_offset(x)), x)
            quantized = quantize(i, regs[0], out)
            return i.store(quantized, 8 * out.q.dtype.itemsize, _storage_offset(out))

        key = (x.q, out.q)
        emit_elementwise(context, "enn_convert", [context.storage(x)], context.storage(out), key, body)


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)
