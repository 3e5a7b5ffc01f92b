"""The core dialect: the operators that the engine compiles. Every other dialect is translated to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.errors import ExecutionError, FormatError, LimitError
from edgewright.ir.core import (  # noqa: F401
    cache,
    conv,
    elementwise,
    gather,
    gemm,
    move,
    norm_softmax,
    pool_resize,
    quantized_cache,
    reduce,
)
from edgewright.ir.core.evaluation import EvaluationContext
from edgewright.ir.core.quant_params import check_structure, check_values
from edgewright.ir.core.table import CORE_OPS, CoreOp, check_op, check_shape
from edgewright.ir.dialect import Dialect
from edgewright.ir.dialect_checks import check_ops
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import FLOAT32, Numerics


class CoreDialect(Dialect):
    def row(self, kind: str) -> CoreOp | None:
        return CORE_OPS.get(kind[5:]) if kind.startswith("core.") else None

    def check(self, graph: Graph, memory: int) -> None:
        check_structure(graph)
        values = list(graph.values())
        for value in values:
            _check_tensor(value, memory)
        check_values(values)
        for value in (*graph.inputs, *graph.outputs):
            if value.q is not None and value.q.dynamic is not None:
                where = f"value {value.name!r}"
                raise FormatError("must not be quantized at run time", where=where, value=value.q.dynamic)
        unknown = sorted({op.name for op in graph.ops if op.kind not in self})
        if unknown:
            raise ExecutionError("device graph", f"has operators without an implementation: {', '.join(unknown)}"[:200])
        check_ops(graph, lambda op: self.check_op(op, memory), within="")

    def check_row(self, op: Op, row: Any, memory: int) -> None:
        """Shapes are checked if all are static; dynamic ones are inferred when they are known
        (``engine/graph/infer_shapes.py``), and the executor limits memory."""
        for _, value in (*check_op(op, row), ("", op.outputs[0])):
            if value is not None and value.dynamic:
                return
        check_shape(op, row)

    def run_op(self, op: Op, arrays: Mapping[Value, Array], numerics: Numerics) -> Sequence[Array]:
        context = EvaluationContext(numerics)
        context.values.update(arrays)
        row = self.row(op.kind)
        assert row is not None
        return (row.reference(context, op),)


def _check_tensor(value: Value, memory: int) -> None:
    if value.dtype is None or value.kind != "tensor" or value.state:
        raise FormatError("must be a tensor", where=f"value {value.name!r}", value=value.kind)
    if value.nbytes > memory:
        raise LimitError(f"value {value.name!r}", f"may take {memory} bytes", value=value.nbytes)


CORE = CoreDialect("core", "the core dialect", CORE_OPS, FLOAT32)
