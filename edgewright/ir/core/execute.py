"""The numpy reference interpreter of core graphs, which the engine and vendors' software are compared with.

Values are arrays of stored integers or floats. Quantization parameters are in the graph, except for dynamically
quantized rows, which carry theirs. Images are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from edgewright.errors import ExecutionError, LimitError
from edgewright.ir.analysis import last_uses
from edgewright.ir.core import argmax_resize, conv, elementwise, move, pool, size_bounds  # noqa: F401  (registers implementations)
from edgewright.ir.core.aten_fallback import aten_reference
from edgewright.ir.core.registry import IMPLEMENTATIONS, EvaluationContext, Implementation, raw_array
from edgewright.ir.graph import Array, Graph, Op
from edgewright.ir.numerics import Numerics


def find_implementation(kind: str) -> Implementation | None:
    """The implementation of a kind: core, op table, or a vendor dialect (``tosa.conv2d``), imported on demand."""
    dialect = kind.partition(".")[0]
    if kind in IMPLEMENTATIONS or dialect not in DIALECTS:
        return IMPLEMENTATIONS.get(kind) or aten_reference(kind)
    has_op: Callable[[str], bool] = import_module(f"edgewright.ir.{dialect}.execute").has_op
    return _run_vendor_op if has_op(kind) else None


DIALECTS = ("tosa", "tflite", "qnn", "enn")


def _run_vendor_op(ex: EvaluationContext, op: Op) -> Any:
    """Run a vendor dialect's operator on raw values."""
    run: Callable[..., Any] = import_module(f"edgewright.ir.{op.kind.partition('.')[0]}.execute").run_op
    arrays = {v: ex.raw(v) for v in op.inputs()}
    result, out = run(op, arrays, ex.numerics.name), op.outputs[0]
    if isinstance(result, tuple):
        return result
    complete = all(arrays[v].shape == v.bound for v in op.inputs())  # otherwise the arrays are slices of the operands
    if out is not None and complete and result.shape != out.bound:
        raise ExecutionError(f"device graph: {op.name}", f"must give {list(out.bound)}", value=list(result.shape))
    return result if out is None or result.dtype == out.dtype else result.astype(out.dtype)


class Executor(EvaluationContext):
    """Runs one graph, without state between runs. ``memory``: limit on live values, in bytes."""

    def __init__(self, graph: Graph, numerics: Numerics, memory: int = 4 << 30) -> None:
        self._implementations = {op.kind: find_implementation(op.kind) for op in graph.ops}
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
        size = size_bounds.max_elements(op, lambda value: raw_array(self.raw(value)).shape)
        if self._live_bytes + 8 * size > self.memory or size * size_bounds.reads_per_element(op) > 16 * self.memory:
            rule = f"values may take {self.memory} bytes at a time"
            raise LimitError(f"device graph: {op.name}", rule, value=f"{size} elements more")
