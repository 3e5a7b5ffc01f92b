"""Operators without a kernel: the reference, inside the same schedule."""

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

_BROKEN = (ValueError, LookupError, ArithmeticError, TypeError)  # numbers of a file that make no sense to numpy


class ReferenceStep(Lowering):
    """Any node at all."""

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
        given, made = homes[: len(reads)], homes[len(reads) :]

        def run(sources: Sequence[Array], targets: Sequence[Array]) -> None:
            try:
                results = executor.run([_plain(h, x) for h, x in zip(given, sources, strict=True)])
            except _BROKEN as error:
                raise ExecutionError(f"device graph: {node.label}", f"does not run: {error}"[:200]) from error
            for home, target, result in zip(made, targets, results, strict=True):
                if result.shape != target.shape:
                    rule = f"makes a tensor of shape {list(result.shape)}"
                    raise ExecutionError(f"device graph: {node.label}", rule, value=list(target.shape))
                target[...] = _kept(home, result)

        views = [h.view(_dtype(h)) for h in homes]
        context.call(PythonCall(run, tuple(views[: len(reads)]), tuple(views[len(reads) :])))


def _moved(home: Storage) -> bool:
    q = home.value.q
    return not home.raw and q is not None and bool(storage_offset(q))


def _dtype(home: Storage) -> np.dtype[np.generic]:
    assert home.value.dtype is not None
    return np.dtype(np.uint8) if _moved(home) else home.value.dtype


def _plain(home: Storage, x: Array) -> Array:
    return (x ^ 0x80).view(np.int8) if _moved(home) else np.ascontiguousarray(x)


def _kept(home: Storage, x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(0x80) if _moved(home) else x
