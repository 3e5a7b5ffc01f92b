"""Float32 reductions over any dimensions."""

from __future__ import annotations

import math

from edgewright.engine.graph.nodes import Node, is_float32
from edgewright.engine.kernels.reduce import (
    COMBINERS,
    ReduceSpec,
    emit_reduce,
    plan_reduce,
    runtime_params,
    units,
    without_sizes,
)
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.ir.dtypes import ScalarType


class FloatReduce(DenseLowering):
    """sum, mean, prod, amax and amin of float32."""

    def __init__(self, node: Node, reduce: ReduceSpec) -> None:
        super().__init__(node)
        self.reduce = reduce

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if not is_unfused(node, *(f"core.{name}" for name in COMBINERS)):
            return None
        x = op.args["self"]
        if not (is_float32(x) and is_float32(node.out)) or op.args.get("dtype") not in (None, int(ScalarType.FLOAT32)):
            return None
        dim, rank = op.args.get("dim"), len(x.bound)
        dims = [dim] if isinstance(dim, int) else dim
        axes = sorted({int(d) % rank for d in dims}) if dims and rank else list(range(rank))
        return cls(node, plan_reduce(op.name, [int(n) for n in x.bound], axes))

    def emit(self, context: LoweringContext) -> None:
        reduce, lanes = self.reduce, context.isa.lanes
        data, out = context.storage(self.node.op.args["self"]), context.storage(self.node.out)
        assert data.layout.dense and out.layout.dense
        dynamic = context.shared is not None
        spec = without_sizes(reduce) if dynamic else reduce
        build = lambda module, name: emit_reduce(module, name, lanes, spec, dynamic)  # noqa: E731
        name = context.kernel("dynamic_reduce" if dynamic else "reduce", spec, build)
        slots = [data.at(), out.at(), *(runtime_params(reduce) if dynamic else ())]
        context.step(name, slots, units(lanes, reduce), math.prod(data.layout.shape) * 0.1)
