"""Executes ENN delegates on the host: runs the host twin, the graph that was AI LiteCore's input.

A program compiled for simulation only contains the twin in place of a blob.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.samsung.dialect import DIALECT, EnnDialect
from edgewright.backends.samsung.dialect.numerics import ENN_NUMERICS
from edgewright.backends.samsung.dialect.table import ENN, PREFIX
from edgewright.engine.graph.graph_io import tensor_spec
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.graph import Graph
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import TwinDelegate, embedded_twin, find_twin

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile
    from edgewright.engine.runner import GraphIO

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.samsung")
_TWIN_REASON = "an Exynos NPU's program does not run on this machine"


class EnnDelegate(TwinDelegate):
    """A loaded blob."""

    device = "ENN"

    def __init__(self, source: DelegateBlob) -> None:
        simulated = bytes(memoryview(source.blob).cast("B")[: len(MAGIC)]) == MAGIC
        twin = embedded_twin(source, self.device) if simulated else find_twin(source, self.device, _TWIN_REASON)
        if not simulated:
            log.warning("an Exynos NPU's program does not run here: the ENN graph of the host twin does")
        try:
            self.runs(twin.runner(_COMPILABLE, source.memory, source.threads))
        except _NotCompilableError as reason:
            self.runs(_NumpyRunner(twin.graph, str(reason)))
        self.how = f"ENN graph{', for this machine only' if simulated else ' of the host twin'} ({self.how})"


class _NotCompilableError(Exception):
    """The engine cannot compile a graph; the message is the reason."""


class _NumpyRunner:
    """Runs a graph with the numpy interpreter."""

    compiled = None

    def __init__(self, graph: Graph, reason: str) -> None:
        self._graph, self.how, self.input_count = graph, f"numpy: {reason}", len(graph.inputs)

    @property
    def io(self) -> GraphIO:
        return tuple(tensor_spec(v) for v in self._graph.inputs), tuple(tensor_spec(v) for v in self._graph.outputs)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: Profile | None = None,
    ) -> list[Array]:  # fmt: skip
        return DIALECT.execute(self._graph, inputs)


class _CompilableEnn(EnnDialect):
    """ENN graphs that the engine can compile."""

    def check(self, graph: Graph, memory: int) -> None:
        super().check(graph, memory)
        reason = _not_compilable_reason(graph)
        if reason:
            raise _NotCompilableError(reason)


_COMPILABLE = _CompilableEnn(DIALECT.name, DIALECT.title, ENN, ENN_NUMERICS)


def _not_compilable_reason(graph: Graph) -> str:
    """Why the engine cannot compile a graph; empty if it can."""
    several = {op.kind.removeprefix(PREFIX) for op in graph.ops if len(op.outputs) != 1} - {"SPLIT"}
    if several:
        return f"{', '.join(sorted(several))} with several results"
    empty = next((v.name for v in graph.values() if 0 in v.bound), None)
    return f"{empty} has no elements" if empty is not None else ""
