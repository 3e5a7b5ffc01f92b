"""Executes QNN blobs on the host: Qualcomm's HTP emulator runs the same context binary as a device.

Without Qualcomm's libraries, or with ``EDGEWRIGHT_QNN=twin``, the host twin runs instead, with a warning. It also runs
contexts whose methods share weights, which the emulator does not load. ``EDGEWRIGHT_QNN=emulator`` disables both. The
library is native code that trusts its input, so a context whose hash differs from its signature is rejected unless
``EDGEWRIGHT_QNN_TRUST=1`` is set (ExecuTorch's files have a timestamp as their signature).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgewright.backends.qualcomm.blob import Blob, read_blob
from edgewright.backends.qualcomm.emulator import EmulatedContext, TensorDesc
from edgewright.backends.qualcomm.emulator_server import check_version, release
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.qnn.library import find_folder
from edgewright.backends.qualcomm.target import QcomChipset, QnnTarget
from edgewright.backends.qualcomm.twin import QnnTwinRunner
from edgewright.errors import ExecutionError, FormatError, MissingError, VendorError
from edgewright.formats.twin_writer import MAGIC
from edgewright.hints import not_among
from edgewright.runtime.delegates import DelegateBase, DelegateBlob
from edgewright.runtime.twin_delegate import embedded_twin, find_twin

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

__all__ = ["QnnDelegate", "check_version", "release"]
Array = np.ndarray[Any, Any]
CHOICE, TRUST = "EDGEWRIGHT_QNN", "EDGEWRIGHT_QNN_TRUST"
_CHOICES = ("", "emulator", "twin")
_LIBRARIES = " Or install Qualcomm's emulator: pip install 'edgewright[qualcomm]'."
log = logging.getLogger("edgewright.qualcomm")


class ContextRunner(Protocol):
    """Executes a context: the emulator or the host twin."""

    inputs: list[TensorDesc]
    outputs: list[TensorDesc]

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]: ...

    def close(self) -> None: ...


class QnnDelegate(DelegateBase):
    """A loaded context. ``how``: a description of what executes it."""

    storage_order = True  # tensors are passed in storage order
    raw_outputs = True  # scalars have rank 1 in QNN

    def __init__(self, source: DelegateBlob) -> None:
        soc = QnnTarget.read(source.compile_specs[KEY]).soc if KEY in source.compile_specs else QcomChipset.SM8650
        self._closed = False
        self._runner: ContextRunner
        if bytes(memoryview(source.blob).cast("B")[: len(MAGIC)]) == MAGIC:
            self._runner = twin = QnnTwinRunner(embedded_twin(source, "QNN"), source.memory, source.threads)
            self.how = f"{soc.name}: {twin.how}; this program is for this machine only"
            return
        blob = read_blob(source.blob)
        reason = why_twin()
        if not reason:
            _check_intact(blob)
            try:
                self._runner = emulated = EmulatedContext(blob.context, int(soc), source.method, source.memory)
                self.how = f"{soc.name} emulated by QNN {release(emulated.build)}"
                return
            except VendorError as error:
                if not _may_replace(error, source):
                    raise
                reason = "it does not load contexts whose methods share weights"
        self._runner = twin = QnnTwinRunner(find_twin(source, "QNN", reason, _LIBRARIES), source.memory, source.threads)
        self.how = f"{soc.name}: {twin.how}, not Qualcomm's emulator: {reason}"
        _warn_twin(reason)

    @property
    def input_count(self) -> int:
        return len(self._runner.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """Run on ``inputs``."""
        return self.execute_into(inputs, (), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> list[Array]:
        """Like ``execute``; results are always new arrays. The emulator runs a graph as one step."""
        descs = self._runner.inputs
        if len(inputs) != len(descs):
            raise ExecutionError("QNN delegate", f"takes {len(descs)} inputs", value=len(inputs))
        if self._closed:
            raise ExecutionError("QNN delegate", "must not be closed")
        return self._runner.run(
            [_check_input(i, x, desc) for i, (x, desc) in enumerate(zip(inputs, descs, strict=True))], profile
        )

    def close(self) -> None:
        """Release the context."""
        self._runner.close()
        self._closed = True


def why_twin() -> str:
    """Why the twin runs instead of the emulator; empty if the emulator runs."""
    choice = os.environ.get(CHOICE, "")
    if choice not in _CHOICES:
        raise not_among(CHOICE, choice, filter(None, _CHOICES))
    if choice == "twin":
        return "as asked"
    try:
        find_folder()
    except MissingError:
        if choice == "emulator" or os.environ.get("QNN_SDK_ROOT"):  # explicitly configured libraries must exist
            raise
        return "Qualcomm's libraries are not installed"
    return ""


def _may_replace(error: VendorError, source: DelegateBlob) -> bool:
    """Whether a twin may run instead of a context that the emulator refuses, because its methods share weights."""
    shares = "Shared weights" in str(error.value)
    return shares and bool(source.twins_digest()) and os.environ.get(CHOICE, "") != "emulator"


@cache
def _warn_twin(reason: str) -> None:
    """Warn once per process."""
    log.warning("host twins run in place of Qualcomm's emulator: %s", reason)


def _check_intact(blob: Blob) -> None:
    if blob.intact or os.environ.get(TRUST) == "1":
        return
    rule = "must be the hash of its context, because Qualcomm's library does not check it"
    remedy = f"Compile it again, or set {TRUST}=1 if it is stock's own and you trust it."
    raise FormatError(rule, where="QNN blob.signature", value=blob.signature, offset=4, remedy=remedy)


def _check_input(index: int, array: Array, desc: TensorDesc) -> Array:
    """Check the dtype and shape of an input; a scalar may be passed for shape [1]."""
    subject = f"input {index} of the QNN delegate"
    if str(array.dtype) != desc.dtype:
        raise ExecutionError(subject, f"must be {desc.dtype}", value=str(array.dtype))
    if array.shape != desc.dims and (array.shape or desc.dims != (1,)):
        raise ExecutionError(subject, f"must have the shape {list(desc.dims)}", value=list(array.shape))
    return np.ascontiguousarray(array)
