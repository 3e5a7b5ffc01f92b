"""QNN's conversions between real numbers and integers of 16 bits."""

from __future__ import annotations

from edgewright.engine.codegen.builder import Function, Reg, lane_count
from edgewright.engine.codegen.ranged_int import RangedIntBuilder
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.elementwise import bounds
from edgewright.engine.dialects.qnn_elementwise import real, stored
from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.lower.elementwise import emit_elementwise
from edgewright.ir.graph import Value

_KINDS = ("qnn.Quantize", "qnn.Dequantize", "qnn.Convert", "qnn.Cast")


class QnnConversion(Lowering):
    """Between single precision and integers of one scale."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind not in _KINDS or len(node.ops) > 1:
            return None
        ends = [node.op.args["inputs"][0], node.out]
        whole, other = ends if ends[1].q is None else ends[::-1]
        fits = whole.q is not None and whole.q.axis is None and whole.q.dtype.itemsize <= 2 and is_float32(other)
        return cls(node) if fits and not ends[0].constant else None

    def emit(self, context: LoweringContext) -> None:
        x, out = self.node.op.args["inputs"][0], self.node.out

        def body(f: Function, given: list[Reg]) -> Reg:
            i = RangedIntBuilder(f, lane_count(given[0].type))
            if out.q is None:
                return real(i, i.load(given[0], *bounds(x), _moved(x)), x)
            return i.store(stored(i, given[0], out), 8 * out.q.dtype.itemsize, _moved(out))

        emit_elementwise(context, "rescale", [context.home(x)], context.home(out), (x.q, out.q), body)


def _moved(value: Value) -> int:
    """What is added to a stored value inside the engine."""
    return 0 if value.q is None else storage_offset(value.q)
