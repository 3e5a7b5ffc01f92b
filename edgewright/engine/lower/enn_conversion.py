"""ENN's conversions between real numbers and integers."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import bounds
from edgewright.engine.dialects.enn_elementwise import real, stored
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.enn.numerics import inputs_of, result_of
from edgewright.ir.graph import Value


class EnnConversion(Lowering):
    """QUANTIZE and DEQUANTIZE of single precision."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in ("enn.QUANTIZE", "enn.DEQUANTIZE") or len(node.ops) > 1:
            return None
        ends = [inputs_of(node.op)[0], result_of(node.op)]
        whole, other = ends if node.op.kind.endswith("DEQUANTIZE") else ends[::-1]
        fits = whole.q is not None and whole.q.axis is None and is_float32(other) and not ends[0].constant
        return cls(node) if fits else None

    def emit(self, context: LoweringContext) -> None:
        x, out = inputs_of(self.node.op)[0], result_of(self.node.op)

        def body(f: Function, given: list[Reg]) -> Reg:
            i = RangedIntBuilder(f, lane_count(given[0].type))
            if out.q is None:
                return real(i, i.load(given[0], *bounds(x), _moved(x)), x)
            made = stored(i, given[0], out)
            return i.store(made, 8 * out.q.dtype.itemsize, _moved(out))

        key = (x.q, out.q)
        emit_elementwise(context, "conversion", [context.home(x)], context.home(out), key, body)


def _moved(value: Value) -> int:
    """What is added to a stored value inside the engine."""
    return 0 if value.q is None else storage_offset(value.q)
