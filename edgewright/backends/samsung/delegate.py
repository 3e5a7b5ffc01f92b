"""Runs ENN blobs on this machine: the graph that AI LiteCore was given, from the host twin.

A blob that was made for this machine only is the twin itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.errors import ExecutionError
from edgewright.ir.enn.check import check
from edgewright.ir.enn.execute import execute
from edgewright.ir.graph import GraphError
from edgewright.ir.serialize import MAGIC
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twins import graph_inside, twin_of

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

    @property
    def input_count(self) -> int:
        return len(self._graph.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``, as they lie in memory."""
        values = self._graph.inputs
        if len(inputs) != len(values):
            raise ExecutionError("ENN delegate", f"takes {len(values)} inputs", value=len(inputs))
        for index, (array, value) in enumerate(zip(inputs, values, strict=True)):
            if array.dtype != value.dtype or array.size != int(np.prod(value.bound)):
                rule = f"must be {list(value.bound)} of {value.dtype}"
                found = f"{list(array.shape)} of {array.dtype}"
                raise ExecutionError(f"input {index} of the ENN delegate", rule, value=found)
        held = [np.ascontiguousarray(a).reshape(v.bound) for a, v in zip(inputs, values, strict=True)]
        try:
            return execute(self._graph, held)
        except (ValueError, IndexError, TypeError, GraphError) as error:
            raise ExecutionError("ENN delegate", f"the host twin's graph does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing is held but memory."""


DELEGATE = EnnDelegate
