"""Runs XNNPACK blobs on this machine: ours and stock's, through the same verified reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.xnnpack.blob import read_blob
from edgewright.backends.xnnpack.translate import from_blob
from edgewright.engine.runner import make_runner
from edgewright.errors import FormatError
from edgewright.ir.numerics import XNNPACK
from edgewright.runtime.delegates import DelegateBlob

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]


class XnnpackDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # XNNPACK sees tensors as they lie in memory

    def __init__(self, given: DelegateBlob) -> None:
        try:
            self._graph = from_blob(read_blob(given.blob), given.named_data)
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # numbers that fit no tensor
            raise FormatError(f"the graph does not hold together: {error}", where="XNNPACK blob") from error
        self._runner = make_runner(self._graph, XNNPACK, given.memory, given.threads, varies=given.varies)
        self.how = self._runner.how

    @property
    def input_count(self) -> int:
        return len(self._graph.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        return self._runner.run(inputs)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: EngineProfile | None
    ) -> list[Array]:
        """The outputs: those of ``outputs`` that could be written to, new arrays for the others."""
        return self._runner.run(inputs, outputs, profile)

    def close(self) -> None:
        """Nothing is held but memory."""


DELEGATE = XnnpackDelegate
