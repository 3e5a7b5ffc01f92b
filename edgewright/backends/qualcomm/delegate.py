"""Executes QNN blobs on the host: Qualcomm's HTP emulator runs the same context binary as a device.

Without Qualcomm's libraries, or with ``EDGEWRIGHT_QNN=twin``, the host twin runs instead, with a warning;
``EDGEWRIGHT_QNN=emulator`` disables this fallback. The library is native code that trusts its input, so a context whose
hash differs from its signature is rejected unless ``EDGEWRIGHT_QNN_TRUST=1`` is set (ExecuTorch's files have a
timestamp as their signature).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from edgewright.backends.qualcomm.blob import Blob, read_blob
from edgewright.backends.qualcomm.emulator import Emulated, End
from edgewright.backends.qualcomm.emulator_server import check_version, release
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.backends.qualcomm.target import QcomChipset, QnnTarget
from edgewright.backends.qualcomm.twin import TwinRunner
from edgewright.errors import ExecutionError, FormatError, MissingError
from edgewright.formats.twin_writer import MAGIC
from edgewright.hints import not_among
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import embedded_twin, find_twin

__all__ = ["DELEGATE", "QnnDelegate", "check_version", "release"]
Array = np.ndarray[Any, Any]
CHOICE, TRUST = "EDGEWRIGHT_QNN", "EDGEWRIGHT_QNN_TRUST"
_CHOICES = ("", "emulator", "twin")
_LIBRARIES = " Or install Qualcomm's emulator: pip install 'edgewright[qualcomm]'."
log = logging.getLogger("edgewright.qualcomm")


class Runner(Protocol):
    """What runs a graph."""

    inputs: list[End]
    outputs: list[End]

    def run(self, inputs: Sequence[Array]) -> list[Array]: ...

    def close(self) -> None: ...


class QnnDelegate:
    """One context, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory
    raw_outputs = True  # a number alone has a dimension here

    def __init__(self, given: DelegateBlob) -> None:
        soc = QnnTarget.read(given.compile_specs[KEY]).soc if KEY in given.compile_specs else QcomChipset.SM8650
        self._closed = False
        self._runner: Runner
        if bytes(memoryview(given.blob).cast("B")[: len(MAGIC)]) == MAGIC:
            self._runner = twin = TwinRunner(embedded_twin(given, "QNN"), given.memory, given.threads)
            self.how = f"{soc.name}: {twin.how}; this program is for this machine only"
            return
        blob = read_blob(given.blob)
        why = why_twin()
        if why:
            self._runner = twin = TwinRunner(find_twin(given, "QNN", why, _LIBRARIES), given.memory, given.threads)
            self.how = f"{soc.name}: {twin.how}, not Qualcomm's emulator: {why}"
            _say_twin(why)
            return
        _check_intact(blob)
        self._runner = emulated = Emulated(blob.context, int(soc), given.method, given.memory)
        self.how = f"{soc.name} emulated by QNN {release(emulated.build)}"

    @property
    def input_count(self) -> int:
        return len(self._runner.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``."""
        ends = self._runner.inputs
        if len(inputs) != len(ends):
            raise ExecutionError("QNN delegate", f"takes {len(ends)} inputs", value=len(inputs))
        if self._closed:
            raise ExecutionError("QNN delegate", "must not be closed")
        return self._runner.run([_fitting(i, x, end) for i, (x, end) in enumerate(zip(inputs, ends, strict=True))])

    def close(self) -> None:
        """Give back the context."""
        self._runner.close()
        self._closed = True


DELEGATE = QnnDelegate


def why_twin() -> str:
    """Why the twin runs, not the emulator; empty if the emulator does."""
    chosen = os.environ.get(CHOICE, "")
    if chosen not in _CHOICES:
        raise not_among(CHOICE, chosen, filter(None, _CHOICES))
    if chosen == "twin":
        return "as asked"
    try:
        find_folder()
    except MissingError:
        if chosen == "emulator" or os.environ.get("QNN_SDK_ROOT"):  # who names libraries wants them
            raise
        return "Qualcomm's libraries are not installed"
    return ""


@cache
def _say_twin(why: str) -> None:
    """Once a process."""
    log.warning("host twins run in place of Qualcomm's emulator: %s", why)


def _check_intact(blob: Blob) -> None:
    if blob.intact or os.environ.get(TRUST) == "1":
        return
    rule = "must be the hash of its context, which Qualcomm's library would be given unchecked"
    remedy = f"Compile it again, or set {TRUST}=1 if it is stock's own and you trust it."
    raise FormatError(rule, where="QNN blob.signature", value=blob.signature, offset=4, remedy=remedy)


def _fitting(index: int, array: Array, end: End) -> Array:
    """An input as the graph wants it; a scalar has one dimension there."""
    subject = f"input {index} of the QNN delegate"
    if str(array.dtype) != end.dtype:
        raise ExecutionError(subject, f"must be {end.dtype}", value=str(array.dtype))
    if array.shape != end.dims and (array.shape or end.dims != (1,)):
        raise ExecutionError(subject, f"must have the shape {list(end.dims)}", value=list(array.shape))
    return np.ascontiguousarray(array)
