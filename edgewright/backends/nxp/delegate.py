"""Runs Neutron blobs on this machine: the TFLite graph that NXP's converter was given, from the host twin.

A blob that was made for this machine only is the twin itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.nxp.blob import read_blob
from edgewright.backends.nxp.target import ROUNDING
from edgewright.engine.runner import make_runner
from edgewright.errors import ExecutionError, FormatError
from edgewright.ir.numerics import named
from edgewright.ir.serialize import MAGIC
from edgewright.ir.tflite.check import check
from edgewright.ir.tflite.execute import NUMERICS
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twins import fitting, graph_inside, twin_of

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.nxp")


class NeutronDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory

    def __init__(self, given: DelegateBlob) -> None:
        view = memoryview(given.blob).cast("B")
        if bytes(view[: len(MAGIC)]) == MAGIC:
            self._graph = graph_inside(given, "Neutron")
            self.how = "TFLite graph, for this machine only"
        else:
            blob = read_blob(view)
            self._graph = twin_of(given, "Neutron", "Neutron's microcode does not run on this machine")
            if (len(self._graph.inputs), len(self._graph.outputs)) != (blob.arguments, len(blob.output_map)):
                raise FormatError("must have the inputs and outputs of its blob", where="host twin")
            self.how = "TFLite graph of the host twin"
            log.warning("Neutron's microcode does not run here: the TFLite graph of the host twin does")
        rounding = bytes(given.compile_specs.get(ROUNDING, b"tflite")).decode("ascii", "replace")
        if rounding not in NUMERICS:
            raise FormatError(f"must be {' or '.join(NUMERICS)}", where=ROUNDING, value=rounding)
        check(self._graph, given.memory)
        self._runner = make_runner(lambda: self._graph, named(rounding), given.memory, given.threads)
        self.how += f" ({self._runner.how})"

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
        held = fitting(inputs, self._graph.inputs, "Neutron", bytes_alike=True)
        try:
            return self._runner.run(held, outputs, profile)
        except (ValueError, IndexError, TypeError) as error:
            raise ExecutionError("Neutron delegate", f"the host twin's graph does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing is held but memory."""


DELEGATE = NeutronDelegate
