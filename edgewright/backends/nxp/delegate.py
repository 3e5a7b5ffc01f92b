"""Executes Neutron delegates on the host: runs the host twin, the TFLite graph that was the converter's input.

A program compiled for simulation only contains the twin in place of a blob.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from edgewright.backends.nxp.blob import read_blob
from edgewright.backends.nxp.dialect import DIALECT
from edgewright.backends.nxp.dialect.numerics import NUMERICS
from edgewright.backends.nxp.target import ROUNDING
from edgewright.errors import FormatError
from edgewright.formats.twin_writer import MAGIC
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import TwinDelegate, embedded_twin, find_twin

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.nxp")
_TWIN_REASON = "Neutron's microcode does not run on this machine"


class NeutronDelegate(TwinDelegate):
    """A loaded blob."""

    device = "Neutron"
    bytes_alike = True

    def __init__(self, source: DelegateBlob) -> None:
        view = memoryview(source.blob).cast("B")
        simulated = bytes(view[: len(MAGIC)]) == MAGIC
        blob = None if simulated else read_blob(view)
        twin = embedded_twin(source, self.device) if blob is None else find_twin(source, self.device, _TWIN_REASON)
        rounding = bytes(source.compile_specs.get(ROUNDING, b"tflite")).decode("ascii", "replace")
        if rounding not in NUMERICS:
            raise FormatError(f"must be {' or '.join(NUMERICS)}", where=ROUNDING, value=rounding)
        self.runs(twin.runner(DIALECT, source.memory, source.threads, NUMERICS[rounding]))
        if blob is not None and (len(self._inputs), len(self._outputs)) != (blob.arguments, len(blob.output_map)):
            raise FormatError("must have the inputs and outputs of its blob", where="host twin")
        if blob is not None:
            log.warning("Neutron's microcode does not run here: the TFLite graph of the host twin does")
        self.how = f"TFLite graph{', for this machine only' if simulated else ' of the host twin'} ({self.how})"
