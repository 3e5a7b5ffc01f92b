"""Fallback for operators without a kernel: a step that calls the numpy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.plan import PythonCall
from edgewright.errors import ExecutionError
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph, Value

_REFERENCE_ERRORS = (ValueError, LookupError, ArithmeticError, TypeError)  # numpy rejects malformed arguments


class ReferenceStep(Lowering):
    """Accepts any node and runs it in Python, between barriers."""

    exact_reads = True

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return cls(node)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        return True

    def emit(self, context: LoweringContext) -> None:
        node = self.node
        reads, writes = list(node.reads()), node.outputs
        executor = Executor(Graph("step", list(reads), list(writes), node.ops), context.numerics, context.memory)
        homes = [context.home(v) for v in (*reads, *writes)]
        sources_homes, target_homes = homes[: len(reads)], homes[len(reads) :]

        def run(sources: Sequence[Array], targets: Sequence[Array]) -> None:
            try:
                results = executor.run([_decode(h, x) for h, x in zip(sources_homes, sources, strict=True)])
            except _REFERENCE_ERRORS as error:
                raise ExecutionError(f"device graph: {node.label}", f"does not run: {error}"[:200]) from error
            for home, target, result in zip(target_homes, targets, results, strict=True):
                if result.shape != target.shape:
                    rule = f"makes a tensor of shape {list(result.shape)}"
                    raise ExecutionError(f"device graph: {node.label}", rule, value=list(target.shape))
                target[...] = _encode(home, result)

        views = [h.view(_dtype(h)) for h in homes]
        context.call(PythonCall(run, tuple(views[: len(reads)]), tuple(views[len(reads) :])))


def _is_offset(home: Storage) -> bool:
    """Whether int8 elements are stored offset to uint8."""
    q = home.value.q
    return not home.raw and q is not None and bool(storage_offset(q))


def _dtype(home: Storage) -> np.dtype[np.generic]:
    assert home.value.dtype is not None
    return np.dtype(np.uint8) if _is_offset(home) else home.value.dtype


def _decode(home: Storage, x: Array) -> Array:
    """An array as the reference expects it."""
    return (x ^ 0x80).view(np.int8) if _is_offset(home) else np.ascontiguousarray(x)


def _encode(home: Storage, x: Array) -> Array:
    """A result as the engine stores it."""
    return np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(0x80) if _is_offset(home) else x
