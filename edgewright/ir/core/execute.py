"""The numpy reference interpreter of core graphs, which the engine and vendors' software are compared with.

Values are arrays of stored integers or floats. Quantization parameters are in the graph, except for dynamically
quantized rows, which carry theirs. Images are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from edgewright.errors import ExecutionError, LimitError
from edgewright.ir.core import argmax_resize, conv, elementwise, move, pool, size_bounds  # noqa: F401  (they register what they mean)
from edgewright.ir.core.aten_fallback import aten_reference
from edgewright.ir.core.registry import IMPLEMENTATIONS, EvaluationContext, Implementation, stored_array
from edgewright.ir.graph import Array, Graph, Op
from edgewright.ir.liveness import last_uses
from edgewright.ir.numerics import Numerics


def find_implementation(kind: str) -> Implementation | None:
    """The implementation of a kind: core, op table, or a vendor dialect (``tosa.conv2d``), imported on demand."""
    dialect = kind.partition(".")[0]
    if kind in IMPLEMENTATIONS or dialect not in DIALECTS:
        return IMPLEMENTATIONS.get(kind) or aten_reference(kind)
    has_op: Callable[[str], bool] = import_module(f"edgewright.ir.{dialect}.execute").has_op
    return _in_dialect if has_op(kind) else None


DIALECTS = ("tosa", "tflite", "qnn", "enn")


def _in_dialect(ex: EvaluationContext, op: Op) -> Any:
    """Run a vendor dialect's operator on stored values."""
    run: Callable[..., Any] = import_module(f"edgewright.ir.{op.kind.partition('.')[0]}.execute").run_op
    held = {v: ex.stored(v) for v in op.inputs()}
    made, out = run(op, held, ex.numerics.name), op.outputs[0]
    if isinstance(made, tuple):
        return made
    whole = all(held[v].shape == v.bound for v in op.inputs())  # else they are some of the elements
    if out is not None and whole and made.shape != out.bound:
        raise ExecutionError(f"device graph: {op.kind}", f"must give {list(out.bound)}", value=list(made.shape))
    return made if out is None or made.dtype == out.dtype else made.astype(out.dtype)


class Executor(EvaluationContext):
    """Runs one graph, without state between runs. ``memory``: limit on live values, in bytes."""

    def __init__(self, graph: Graph, numerics: Numerics, memory: int = 4 << 30) -> None:
        self._meanings = {op.kind: find_implementation(op.kind) for op in graph.ops}
        missing = sorted(kind for kind, found in self._meanings.items() if found is None)
        if missing:
            raise ExecutionError("device graph", f"has operators without a meaning here: {', '.join(missing)}")
        super().__init__(numerics)
        self.graph = graph
        self.memory = memory
        self._held = 0  # bytes
        self._dead = last_uses(graph)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``."""
        self.values = dict(zip(self.graph.inputs, inputs, strict=True))
        self._held = sum(x.nbytes for x in inputs)
        for op in self.graph.ops:
            self._afford(op)
            function = self._meanings[op.kind]
            assert function is not None
            results = function(self, op)
            for out, result in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=False):
                if out is not None:
                    self.values[out] = result
                    self._held += stored_array(result).nbytes
            for dead in self._dead[op]:
                if dead in self.values:
                    self._held -= stored_array(self.values.pop(dead)).nbytes
        outputs = [self.stored(v) for v in self.graph.outputs]
        self.values = {}
        return outputs

    def _afford(self, op: Op) -> None:
        """Reject an operator whose result would exceed the memory limit."""
        size = size_bounds.max_elements(op, lambda value: stored_array(self.stored(value)).shape)
        if self._held + 8 * size > self.memory or size * size_bounds.reads_per_element(op) > 16 * self.memory:
            rule = f"values may take {self.memory} bytes at a time"
            raise LimitError(f"device graph: {op.kind}", rule, value=f"{size} elements more")
