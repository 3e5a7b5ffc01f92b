"""int8 softmax in fixed point."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.kernels.elementwise import LoopOperand, plan_loops
from edgewright.engine.kernels.int_rows import Int8SoftmaxSpec, emit_int8_softmax
from edgewright.engine.lower.base import DescribedLowering, Lowering, LoweringContext
from edgewright.ir.int_rules import FixedPointSoftmax

_MAX_LENGTH = 4095  # elements of a row, so that the sum of exponentials fits in 31 bits


class Int8Softmax(DescribedLowering):
    """Softmax along the last dimension."""

    def __init__(self, node: Node, softmax: FixedPointSoftmax) -> None:
        super().__init__(node)
        self.softmax = softmax

    @classmethod
    def accept_description(cls, node: Node, description: FixedPointSoftmax) -> Lowering | None:
        x, out = description.data, node.out
        signed = all(is_quantized8(v.q) and v.dtype == np.dtype(np.int8) for v in (x, out))
        supported = signed and x.bound == out.bound and x.bound and 0 < x.bound[-1] <= _MAX_LENGTH
        return cls(node, description) if supported else None

    def emit(self, context: LoweringContext) -> None:
        storages = [context.storage(v) for v in (self.softmax.data, self.node.out)]
        shape = [*storages[0].layout.shape[:-1], 1]
        operands = [LoopOperand("i8", 1, (*h.layout.strides[:-1], 0)) for h in storages]
        tables = [context.weights.add(t.astype(np.int32)) for t in (self.softmax.exps, self.softmax.summands)]
        lanes, length = context.isa.lanes, storages[0].layout.shape[-1]
        for loops, (in_offset, out_offset) in plan_loops(shape, operands):
            rows = Int8SoftmaxSpec(loops, length)
            name = context.kernel("softmax_int8", rows, lambda m, n, rows=rows: emit_int8_softmax(m, n, lanes, rows))  # type: ignore[misc]
            slots = [storages[0].at(in_offset), *tables, storages[1].at(out_offset)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 2.0)
