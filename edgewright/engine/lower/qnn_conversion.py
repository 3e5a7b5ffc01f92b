"""QNN's conversions between float32 and quantized integers."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import dtype_range
from edgewright.engine.dialects.qnn_elementwise import dequantize, quantize
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.graph import Value

_KINDS = ("qnn.Quantize", "qnn.Dequantize", "qnn.Convert", "qnn.Cast")


class QnnConversion(Lowering):
    """Quantize, Dequantize, Convert and Cast between float32 and integers with one scale."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in _KINDS or len(node.ops) > 1:
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
                return dequantize(i, i.load(regs[0], *dtype_range(x), _storage_offset(x)), x)
            return i.store(quantize(i, regs[0], out), 8 * out.q.dtype.itemsize, _storage_offset(out))

        emit_elementwise(context, "qnn_convert", [context.storage(x)], context.storage(out), (x.q, out.q), body)


def _storage_offset(value: Value) -> int:
    """Offset between a stored value and the engine's internal representation."""
    return 0 if value.q is None else storage_offset(value.q)
