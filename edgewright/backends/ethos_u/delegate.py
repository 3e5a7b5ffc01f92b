"""Ethos-U delegate on the host: runs blobs of Edgewright and ExecuTorch.

Simulated NPUs execute the command stream. For other NPUs the TOSA graph of the host twin runs instead, with a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.ethos_u import npu
from edgewright.backends.ethos_u.blob import Blob, Tensor, read_blob
from edgewright.backends.ethos_u.target import MEMORY_MODES
from edgewright.backends.ethos_u.twin import TwinRunner
from edgewright.errors import ExecutionError, FormatError, LimitError
from edgewright.runtime.delegates import DelegateBase, DelegateBlob
from edgewright.runtime.twin_delegate import find_twin

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.ethos_u")

_SIMULATED = " Or compile for an ethos-u55 or ethos-u65-256, which are simulated."
_INPUTS = ("int8", "uint8", "bool", "int16", "int32")  # accepted by ExecuTorch's runtime
_STEPS_PER_BYTE = 64
_DEFAULT_FAST_MEMORY = 64 << 20  # fast memory if the mode sets no limit
_MODE = re.compile(rb"--memory-mode=(\w{1,64})(?:\s|$)")
_LIMIT = re.compile(rb"--arena-cache-size=(\d{1,12})(?:\s|$)")


@cache
def _warn_about_twin(reason: str) -> None:
    """Once in a process: compiling loads the same program several times."""
    log.warning("%s: the TOSA graph of the host twin runs in place of its commands", reason)


class EthosUDelegate(DelegateBase):
    """One loaded blob. ``how`` describes what executes it."""

    storage_order = True  # inputs are passed in storage order
    raw_outputs = True  # a blob records the sizes of its outputs, not their types

    def __init__(self, delegate_blob: DelegateBlob) -> None:
        self._blob = read_blob(delegate_blob.blob, delegate_blob.named_data)
        self._runner: _NpuRunner | TwinRunner
        try:
            accelerator = npu.accelerator_of(bytes(self._blob.cmd_data))
            reason = npu.supported(accelerator)
            if reason is None:
                self._runner = _NpuRunner(self._blob, delegate_blob)
        except FormatError as error:
            raise error.inside("Ethos-U blob") from None
        self.how = f"{accelerator} simulated"
        if reason is not None:
            self._runner = TwinRunner(
                find_twin(delegate_blob, "Ethos-U", reason, _SIMULATED),
                self._blob,
                delegate_blob.memory,
                delegate_blob.threads,
            )
            self.how = f"{accelerator}: TOSA graph of the host twin ({self._runner.how})"
            _warn_about_twin(reason)

    @property
    def input_count(self) -> int:
        return len(self._blob.inputs)

    def execute(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs for ``inputs``, as integers of their element size."""
        return self.execute_into(inputs, [None] * len(self._blob.outputs), None)

    def execute_into(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], profile: Profile | None
    ) -> list[Array]:
        """Like ``execute``; results are always new arrays."""
        if len(inputs) != len(self._blob.inputs):
            raise ExecutionError("Ethos-U delegate", f"takes {len(self._blob.inputs)} inputs", value=len(inputs))
        input_bytes = [_input_bytes(i, x, t) for i, (x, t) in enumerate(zip(inputs, self._blob.inputs, strict=True))]
        return self._runner.run(input_bytes, profile)


def _input_bytes(index: int, array: Array, tensor: Tensor) -> Array:
    """Bytes of an input, after the checks of ExecuTorch's runtime."""
    subject = f"input {index} of the Ethos-U delegate"
    if str(array.dtype) not in _INPUTS or array.dtype.itemsize != tensor.element_size:
        rule = f"must be {' or '.join(_INPUTS)} with {tensor.element_size} bytes per element"
        raise ExecutionError(subject, rule, value=str(array.dtype))
    if array.nbytes != tensor.nbytes:
        shape = [n for n in tensor.shape if n != 1]
        raise ExecutionError(subject, f"must have {tensor.nbytes} bytes (sizes {shape})", value=list(array.shape))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _integer_type(tensor: Tensor) -> np.dtype[Any]:
    return np.dtype(f"<i{tensor.element_size}")


class _NpuRunner:
    """Runs the command stream on the NPU simulator."""

    def __init__(self, blob: Blob, delegate_blob: DelegateBlob) -> None:
        self._program = npu.decode(bytes(blob.cmd_data), delegate_blob.layers)
        self._blob = blob
        self._weights = bytes(blob.weight_data)
        self._threads = delegate_blob.threads
        self._fast = min(_fast_scratch_bytes(delegate_blob.compile_specs), delegate_blob.memory)
        self._steps = _STEPS_PER_BYTE * delegate_blob.memory  # the step budget scales with the memory limit
        needed = blob.scratch_size + len(self._weights)
        if needed > delegate_blob.memory:
            rule = f"scratch and constants may take {delegate_blob.memory} bytes"
            remedy = "Raise it with load_program(..., limits=Limits(memory=...)) if you trust the file."
            raise LimitError("Ethos-U delegate", rule, value=needed, remedy=remedy)

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]:
        scratch = np.zeros(self._blob.scratch_size, np.uint8)
        for data, tensor in zip(inputs, self._blob.inputs, strict=True):
            scratch[tensor.offset : tensor.offset + tensor.nbytes] = data
        fast = np.zeros(self._fast, np.uint8)
        npu.run(self._program, weights=self._weights, scratch=scratch, fast_scratch=fast, steps=self._steps,
                threads=self._threads, profile=profile)  # fmt: skip
        results = [(t, scratch[t.offset : t.offset + t.nbytes]) for t in self._blob.outputs]
        return [data.copy().view(_integer_type(t)).reshape(t.shape) for t, data in results]


def _fast_scratch_bytes(specs: Mapping[str, bytes]) -> int:
    """Fast memory that a blob was compiled for. Blobs do not record its use; the compile flags bound it."""
    flags = specs.get("compile_flags", b"")
    limit, mode = _LIMIT.search(flags), _MODE.search(flags)
    mode_limit = MEMORY_MODES.get(mode.group(1).decode()) if mode else None
    return min(int(limit.group(1)) if limit else mode_limit or _DEFAULT_FAST_MEMORY, _DEFAULT_FAST_MEMORY)
