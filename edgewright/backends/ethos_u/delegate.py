"""Runs Ethos-U blobs on this machine, ours and stock's: the NPU's own commands where they are simulated.

For other NPUs the TOSA graph that Vela was given runs instead, from the host twin, and it is said so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.ethos_u import npu
from edgewright.backends.ethos_u.blob import Blob, Tensor, read_blob
from edgewright.backends.ethos_u.target import MEMORY_MODES
from edgewright.backends.ethos_u.twin import Twin
from edgewright.errors import ExecutionError, FormatError, LimitError
from edgewright.runtime.delegates import DelegateBlob
from edgewright.runtime.twin_delegate import twin_of

if TYPE_CHECKING:
    from edgewright.engine.profile import EngineProfile

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.ethos_u")

_SIMULATED = " Or compile for an ethos-u55 or ethos-u65-256, which are simulated."
_INPUTS = ("int8", "uint8", "bool", "int16", "int32")  # what stock's runtime takes
_STEPS_PER_BYTE = 64
_FAST = 64 << 20  # bytes of fast memory for systems whose mode names no limit
_MODE = re.compile(rb"--memory-mode=(\w{1,64})(?:\s|$)")
_LIMIT = re.compile(rb"--arena-cache-size=(\d{1,12})(?:\s|$)")


class EthosUDelegate:
    """One blob, ready to run. ``how`` says what runs it."""

    storage_order = True  # tensors are bytes as they lie in memory
    raw_outputs = True  # a blob knows the sizes of its outputs, not their types

    def __init__(self, given: DelegateBlob) -> None:
        self._blob = read_blob(given.blob, given.named_data)
        self._runner: _Simulated | Twin
        try:
            accelerator = npu.accelerator_of(bytes(self._blob.cmd_data))
            reason = npu.supported(accelerator)
            if reason is None:
                self._runner = _Simulated(self._blob, given)
        except FormatError as error:
            raise error.inside("Ethos-U blob") from None
        self.how = f"{accelerator} simulated"
        if reason is not None:
            self._runner = Twin(twin_of(given, "Ethos-U", reason, _SIMULATED), self._blob, given.memory, given.threads)
            self.how = f"{accelerator}: TOSA graph of the host twin ({self._runner.how})"
            log.warning("%s: the TOSA graph of the host twin runs in place of its commands", reason)

    @property
    def input_count(self) -> int:
        return len(self._blob.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for ``inputs``, as integers of their size."""
        return self.execute_into(inputs, [None] * len(self._blob.outputs), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: EngineProfile | None
    ) -> list[Array]:
        """The same; results are always new arrays."""
        if len(inputs) != len(self._blob.inputs):
            raise ExecutionError("Ethos-U delegate", f"takes {len(self._blob.inputs)} inputs", value=len(inputs))
        stored = [_bytes(i, x, t) for i, (x, t) in enumerate(zip(inputs, self._blob.inputs, strict=True))]
        return self._runner.run(stored, profile)

    def close(self) -> None:
        """Nothing is held but memory."""


DELEGATE = EthosUDelegate


def _bytes(index: int, array: Array, tensor: Tensor) -> Array:
    """An input's bytes, after the checks that stock's runtime makes."""
    subject = f"input {index} of the Ethos-U delegate"
    if str(array.dtype) not in _INPUTS or array.dtype.itemsize != tensor.element_size:
        rule = f"must be {' or '.join(_INPUTS)} with {tensor.element_size} bytes per element"
        raise ExecutionError(subject, rule, value=str(array.dtype))
    if array.nbytes != tensor.nbytes:
        shape = [n for n in tensor.shape if n != 1]
        raise ExecutionError(subject, f"must have {tensor.nbytes} bytes (sizes {shape})", value=list(array.shape))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _integers(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype(f"<i{tensor.element_size}")


class _Simulated:
    """The command stream on the NPU's simulator."""

    def __init__(self, blob: Blob, given: DelegateBlob) -> None:
        self._program = npu.decode(bytes(blob.cmd_data))
        self._blob = blob
        self._weights = bytes(blob.weight_data)
        self._threads = given.threads
        self._fast = min(_fast_bytes(given.compile_specs), given.memory)
        self._steps = _STEPS_PER_BYTE * given.memory  # who may have little memory may not have much time either
        needed = blob.scratch_size + len(self._weights)
        if needed > given.memory:
            rule = f"scratch and constants may take {given.memory} bytes"
            remedy = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."
            raise LimitError("Ethos-U delegate", rule, value=needed, remedy=remedy)

    def run(self, inputs: Sequence[Array], profile: EngineProfile | None = None) -> list[Array]:
        scratch = np.zeros(self._blob.scratch_size, np.uint8)
        for data, tensor in zip(inputs, self._blob.inputs, strict=True):
            scratch[tensor.offset : tensor.offset + tensor.nbytes] = data
        fast = np.zeros(self._fast, np.uint8)
        npu.run(self._program, weights=self._weights, scratch=scratch, fast_scratch=fast, steps=self._steps,
                threads=self._threads)  # fmt: skip
        ends = [(t, scratch[t.offset : t.offset + t.nbytes]) for t in self._blob.outputs]
        return [data.copy().view(_integers(t)).reshape(t.shape) for t, data in ends]


def _fast_bytes(specs: Mapping[str, bytes]) -> int:
    """The fast memory a blob was compiled for. Blobs do not say how much of it they use; the flags give a bound."""
    flags = specs.get("compile_flags", b"")
    limit, mode = _LIMIT.search(flags), _MODE.search(flags)
    known = MEMORY_MODES.get(mode.group(1).decode()) if mode else None
    return min(int(limit.group(1)) if limit else known or _FAST, _FAST)
