"""TFLite's int8 softmax."""

from __future__ import annotations

import math

import numpy as np

from edgewright.backends.nxp.dialect.fixed_point_math import softmax_exp_table
from edgewright.engine.graph.nodes import Node, is_quantized8
from edgewright.engine.kernels.elementwise import LoopOperand, plan_loops
from edgewright.engine.kernels.int8_softmax import Int8SoftmaxSpec, emit_softmax
from edgewright.engine.lower.base import Lowering, LoweringContext

_MAX_LENGTH = 4095  # elements of a row, so that the sum of exponentials fits in 31 bits


class Int8Softmax(Lowering):
    """Softmax along the last dimension."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if node.op.kind != "tflite.SOFTMAX" or len(node.ops) > 1:
            return None
        x, out = node.op.args["inputs"][0], node.out
        signed = all(is_quantized8(v.q) and v.dtype == np.dtype(np.int8) for v in (x, out))
        return cls(node) if signed and x.bound == out.bound and x.bound and 0 < x.bound[-1] <= _MAX_LENGTH else None

    def emit(self, context: LoweringContext) -> None:
        op = self.node.op
        storages = [context.storage(v) for v in (op.args["inputs"][0], self.node.out)]
        shape = [*storages[0].layout.shape[:-1], 1]
        operands = [LoopOperand("i8", 1, (*h.layout.strides[:-1], 0)) for h in storages]
        tables = [context.weights.add(table.astype(np.int32)) for table in softmax_exp_table(op)]
        lanes, length = context.isa.lanes, storages[0].layout.shape[-1]
        for loops, (in_offset, out_offset) in plan_loops(shape, operands):
            rows = Int8SoftmaxSpec(loops, length)
            name = context.kernel("softmax_int8", rows, lambda m, name, rows=rows: emit_softmax(m, name, lanes, rows))  # type: ignore[misc]
            slots = [storages[0].at(in_offset), *tables, storages[1].at(out_offset)]
            context.step(name, slots, loops.units, math.prod(loops.shape) * length * 2.0)
