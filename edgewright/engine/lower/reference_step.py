"""Fallback for operators without a kernel: a step that calls the numpy reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.registry import find_dialect
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
        graph = Graph("step", list(reads), list(writes), node.ops)
        executor = Executor(graph, context.numerics, context.memory, find_dialect)
        storages = [context.storage(v) for v in (*reads, *writes)]
        source_storages, target_storages = storages[: len(reads)], storages[len(reads) :]

        def run(sources: Sequence[Array], targets: Sequence[Array]) -> None:
            try:
                results = executor.run([_decode(h, x) for h, x in zip(source_storages, sources, strict=True)])
            except _REFERENCE_ERRORS as error:
                raise ExecutionError(f"device graph: {node.label}", f"does not run: {error}"[:200]) from error
            for storage, target, result in zip(target_storages, targets, results, strict=True):
                if result.shape != target.shape:
                    rule = f"produces a tensor of shape {list(result.shape)}"
                    raise ExecutionError(f"device graph: {node.label}", rule, value=list(target.shape))
                target[...] = _encode(storage, result)

        views = [h.view(_dtype(h)) for h in storages]
        context.call(PythonCall(run, tuple(views[: len(reads)]), tuple(views[len(reads) :])))


def _is_offset(storage: Storage) -> bool:
    """Whether int8 elements are stored offset to uint8."""
    q = storage.value.q
    return not storage.raw and q is not None and bool(storage_offset(q))


def _dtype(storage: Storage) -> np.dtype[np.generic]:
    assert storage.value.dtype is not None
    return np.dtype(np.uint8) if _is_offset(storage) else storage.value.dtype


def _decode(storage: Storage, x: Array) -> Array:
    """An array as the reference expects it."""
    return (x ^ 0x80).view(np.int8) if _is_offset(storage) else np.ascontiguousarray(x)


def _encode(storage: Storage, x: Array) -> Array:
    """A result as the engine stores it."""
    return np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(0x80) if _is_offset(storage) else x
