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
_WHY = "Neutron's microcode does not run on this machine"


class NeutronDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory

    def __init__(self, given: DelegateBlob) -> None:
        view = memoryview(given.blob).cast("B")
        inside = bytes(view[: len(MAGIC)]) == MAGIC
        blob = None if inside else read_blob(view)
        twin = graph_inside(given, "Neutron") if blob is None else twin_of(given, "Neutron", _WHY)
        rounding = bytes(given.compile_specs.get(ROUNDING, b"tflite")).decode("ascii", "replace")
        if rounding not in NUMERICS:
            raise FormatError(f"must be {' or '.join(NUMERICS)}", where=ROUNDING, value=rounding)
        self._runner = twin.runner(check, named(rounding), given.memory, given.threads)
        self._inputs, self._outputs = self._runner.ends
        if blob is not None and (len(self._inputs), len(self._outputs)) != (blob.arguments, len(blob.output_map)):
            raise FormatError("must have the inputs and outputs of its blob", where="host twin")
        if blob is not None:
            log.warning("Neutron's microcode does not run here: the TFLite graph of the host twin does")
        self.how = f"TFLite graph{', for this machine only' if inside else ' of the host twin'} ({self._runner.how})"

    @property
    def input_count(self) -> int:
        return len(self._inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``, as they lie in memory."""
        return self.execute_into(inputs, [None] * len(self._outputs), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: EngineProfile | None
    ) -> list[Array]:
        """The same: those of ``outputs`` that could be written to, new arrays for the others."""
        held = fitting(inputs, self._inputs, "Neutron", bytes_alike=True)
        try:
            return self._runner.run(held, outputs, profile)
        except (ValueError, IndexError, TypeError) as error:
            raise ExecutionError("Neutron delegate", f"the host twin's graph does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing is held but memory."""


DELEGATE = NeutronDelegate
