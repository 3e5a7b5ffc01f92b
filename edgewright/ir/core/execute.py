"""The numpy reference interpreter of core graphs, which the engine and vendors' software are compared with.

Values are arrays of stored integers or floats. Quantization parameters are in the graph, except for dynamically
quantized rows, which carry theirs. Images are NHWC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from edgewright.errors import ExecutionError, LimitError
from edgewright.ir.analysis import last_uses
from edgewright.ir.core.dialect import CORE
from edgewright.ir.core.evaluation import EvaluationContext, Implementation, raw_array
from edgewright.ir.dialect import Dialect, FindDialect
from edgewright.ir.graph import Array, Graph, Op, Value
from edgewright.ir.numerics import Numerics


def find_implementation(kind: str, find_dialect: FindDialect) -> Implementation | None:
    """The reference of a core operator, or of another dialect's."""
    row = CORE.row(kind)
    if row is not None:
        return row.reference
    dialect = find_dialect(kind.partition(".")[0])
    return None if dialect is None or kind not in dialect else partial(_run_foreign_op, dialect)


def _run_foreign_op(dialect: Dialect, ex: EvaluationContext, op: Op) -> Any:
    """Run an operator of another dialect on stored values."""
    arrays = {v: ex.raw(v) for v in op.inputs()}
    results = dialect.run_op(op, arrays, ex.numerics)
    complete = all(arrays[v].shape == v.bound for v in op.inputs())  # otherwise the arrays are slices of the operands
    for out, result in zip(op.outputs, results, strict=True):
        if out is not None and complete and result.shape != out.bound:
            raise ExecutionError(f"device graph: {op.name}", f"must give {list(out.bound)}", value=list(result.shape))
    return tuple(
        result if out is None or result.dtype == out.dtype else result.astype(out.dtype)
        for out, result in zip(op.outputs, results, strict=True)
    )


def _core_only(name: str) -> None:
    return None


class Executor(EvaluationContext):
    """Runs one graph, without state between runs. ``memory``: limit on live values, in bytes. ``find_dialect``: finds
    the dialects of operators that are not core's."""

    def __init__(
        self, graph: Graph, numerics: Numerics, memory: int = 4 << 30, find_dialect: FindDialect = _core_only
    ) -> None:
        self._implementations = {op.kind: find_implementation(op.kind, find_dialect) for op in graph.ops}
        missing = sorted(kind for kind, implementation in self._implementations.items() if implementation is None)
        if missing:
            raise ExecutionError(
                "device graph",
                f"has operators without an implementation: {', '.join(kind.removeprefix('core.') for kind in missing)}",
            )
        super().__init__(numerics)
        self.graph = graph
        self.memory = memory
        self._live_bytes = 0
        self._dead = last_uses(graph)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``."""
        self.values = dict(zip(self.graph.inputs, inputs, strict=True))
        self._live_bytes = sum(x.nbytes for x in inputs)
        for op in self.graph.ops:
            self._check_memory(op)
            function = self._implementations[op.kind]
            assert function is not None
            results = function(self, op)
            for out, result in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=False):
                if out is not None:
                    self.values[out] = result
                    self._live_bytes += raw_array(result).nbytes
            for dead in self._dead[op]:
                if dead in self.values:
                    self._live_bytes -= raw_array(self.values.pop(dead)).nbytes
        outputs = [self.raw(v) for v in self.graph.outputs]
        self.values = {}
        return outputs

    def _check_memory(self, op: Op) -> None:
        """Reject an operator whose result would exceed the memory limit."""

        def shape_of(value: Value) -> Sequence[int]:
            return raw_array(self.raw(value)).shape

        row = CORE.row(op.kind)
        if row is None:  # a vendor's: its dialect checked it
            size = max((math.prod(shape_of(v)) for v in op.inputs()), default=1)
        else:
            size = row.max_elements(op, shape_of)
        reads = math.prod(op.args.get("kernel_size", ()))  # per element of a pooling window
        if self._live_bytes + 8 * size > self.memory or size * reads > 16 * self.memory:
            rule = f"values may take {self.memory} bytes at a time"
            raise LimitError(f"device graph: {op.name}", rule, value=f"{size} elements more")
