"""Runs the TOSA graph of a host twin in place of a blob's command stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.ethos_u.blob import Blob
from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.errors import ExecutionError, FormatError
from edgewright.runtime.twin_delegate import HostTwin

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]


class TwinRunner:
    """A validated graph with the inputs and outputs of its blob. ``memory``: byte limit of an operator."""

    def __init__(self, twin: HostTwin, blob: Blob, memory: int, threads: int | None = None) -> None:
        self._runner = twin.runner(DIALECT, memory, threads)
        self._inputs, outputs = self._runner.io
        for kind, tensors, blob_tensors in (("inputs", self._inputs, blob.inputs), ("outputs", outputs, blob.outputs)):
            if [t.nbytes for t in tensors] != [t.nbytes for t in blob_tensors]:
                raise FormatError("must have the sizes of its blob's", where=f"host twin.{kind}")
        self._outputs = blob.outputs
        self.how = self._runner.how

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]:
        """Bytes in, integers of the outputs' element sizes out."""
        arrays = [data.view(t.dtype).reshape(t.shape) for data, t in zip(inputs, self._inputs, strict=True)]
        try:
            outputs = [np.ascontiguousarray(array) for array in self._runner.run(arrays, None, profile)]
        except (ValueError, LookupError, ArithmeticError, TypeError) as error:
            raise ExecutionError("host twin", f"the graph does not run: {error}"[:200]) from error
        for array, tensor in zip(outputs, self._outputs, strict=True):
            if array.nbytes != tensor.nbytes:
                raise ExecutionError("host twin", f"must give {tensor.nbytes} bytes", value=array.nbytes)
        pairs = zip(outputs, self._outputs, strict=True)
        return [a.reshape(-1).view(f"i{t.element_size}").reshape(t.shape) for a, t in pairs]
