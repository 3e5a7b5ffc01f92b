"""Runs ENN blobs on this machine: the graph that AI LiteCore was given, from the host twin.

A blob that was made for this machine only is the twin itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.runner import make_runner
from edgewright.errors import ExecutionError
from edgewright.ir.enn.check import check
from edgewright.ir.enn.execute import execute
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, GraphError
from edgewright.ir.numerics import ENN
from edgewright.ir.serialize import MAGIC
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twins import fitting, graph_inside, twin_of

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile
    from edgewright.engine.runner import Runner

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.samsung")


class EnnDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory

    def __init__(self, given: DelegateBlob) -> None:
        view = memoryview(given.blob).cast("B")
        if bytes(view[: len(MAGIC)]) == MAGIC:
            self._graph = graph_inside(given, "ENN")
            self.how = "ENN graph, for this machine only"
        else:
            self._graph = twin_of(given, "ENN", "an Exynos NPU's program does not run on this machine")
            self.how = "ENN graph of the host twin"
            log.warning("an Exynos NPU's program does not run here: the ENN graph of the host twin does")
        check(self._graph, given.memory)
        why = _why_numpy(self._graph)
        self._runner: Runner | None = None
        if not why:
            self._runner = make_runner(lambda: self._graph, ENN, given.memory, given.threads)
        self.how += f" ({f'numpy: {why}' if self._runner is None else self._runner.how})"

    @property
    def input_count(self) -> int:
        return len(self._graph.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``, as they lie in memory."""
        return self.execute_into(inputs, [None] * len(self._graph.outputs), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: EngineProfile | None
    ) -> list[Array]:
        """The same: those of ``outputs`` that could be written to, new arrays for the others."""
        held = fitting(inputs, self._graph.inputs, "ENN")
        try:
            if self._runner is None:
                return execute(self._graph, held)
            return self._runner.run(held, outputs, profile)
        except (ValueError, IndexError, TypeError, GraphError) as error:
            raise ExecutionError("ENN delegate", f"the host twin's graph does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing is held but memory."""


def _why_numpy(graph: Graph) -> str:
    """Why the engine does not run a graph; empty if it does."""
    several = {op.kind.removeprefix(PREFIX) for op in graph.ops if len(op.outputs) != 1} - {"SPLIT"}
    if several:
        return f"{', '.join(sorted(several))} with several results"
    empty = next((v.name for v in graph.values() if 0 in v.bound), None)
    return f"{empty} has no elements" if empty is not None else ""


DELEGATE = EnnDelegate
