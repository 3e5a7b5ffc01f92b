"""Runs ENN blobs on this machine: the graph that AI LiteCore was given, from the host twin.

A blob that was made for this machine only is the twin itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.engine.graph.graph_io import tensor_spec
from edgewright.formats.twin_writer import MAGIC
from edgewright.ir.enn.check import check
from edgewright.ir.enn.execute import execute
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import ENN
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import TwinDelegate, embedded_twin, find_twin

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile
    from edgewright.engine.runner import GraphIO

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.samsung")


class EnnDelegate(TwinDelegate):
    """One blob, ready to run."""

    device = "ENN"

    def __init__(self, given: DelegateBlob) -> None:
        view = memoryview(given.blob).cast("B")
        if bytes(view[: len(MAGIC)]) == MAGIC:
            twin = embedded_twin(given, self.device)
            self.how = "ENN graph, for this machine only"
        else:
            twin = find_twin(given, self.device, "an Exynos NPU's program does not run on this machine")
            self.how = "ENN graph of the host twin"
            log.warning("an Exynos NPU's program does not run here: the ENN graph of the host twin does")
        try:
            self.runs(twin.runner(_check, ENN, given.memory, given.threads))
        except _InNumpyError as why:
            self.runs(_Numpy(twin.graph, str(why)))
        self.how += f" ({self._runner.how})"


class _InNumpyError(Exception):
    """The engine does not run a graph; why."""


class _Numpy:
    """A graph that numpy runs."""

    def __init__(self, graph: Graph, why: str) -> None:
        self._graph, self.how, self.input_count = graph, f"numpy: {why}", len(graph.inputs)

    @property
    def ends(self) -> GraphIO:
        return tuple(tensor_spec(v) for v in self._graph.inputs), tuple(tensor_spec(v) for v in self._graph.outputs)

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None,
        profile: EngineProfile | None = None,
    ) -> list[Array]:  # fmt: skip
        return execute(self._graph, inputs)


def _check(graph: Graph, memory: int) -> None:
    check(graph, memory)
    why = _why_numpy(graph)
    if why:
        raise _InNumpyError(why)


def _why_numpy(graph: Graph) -> str:
    """Why the engine does not run a graph; empty if it does."""
    several = {op.kind.removeprefix(PREFIX) for op in graph.ops if len(op.outputs) != 1} - {"SPLIT"}
    if several:
        return f"{', '.join(sorted(several))} with several results"
    empty = next((v.name for v in graph.values() if 0 in v.bound), None)
    return f"{empty} has no elements" if empty is not None else ""


DELEGATE = EnnDelegate
