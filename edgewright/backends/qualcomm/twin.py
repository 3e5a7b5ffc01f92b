"""The host twin of a blob: the compiler's input graph, for machines without Qualcomm's libraries.

The engine runs it: integers are bit-exact with the dialect's references, floating point is stored in fp16. The
emulator's results are the device's; the twin's results are within one quantization step of them, per operator.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.twin import to_twin, unsupported_ops
from edgewright.backends.qualcomm.emulator import TensorDesc
from edgewright.engine.plan import TensorSpec
from edgewright.errors import ExecutionError
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph
from edgewright.ir.verify import verify
from edgewright.runtime.twin_delegate import HostTwin

if TYPE_CHECKING:
    from edgewright.engine.profile import Profile

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.qualcomm")


def make_twin(device: Graph) -> bytes | None:
    """The twin of a device graph; None, with a warning, if an operator has no reference."""
    unsupported = unsupported_ops(device)
    if unsupported:
        log.warning("no host twin: %s can be run by the emulator and by devices only", ", ".join(unsupported))
        return None
    twin = to_twin(device)
    verify(twin, DIALECT)
    return write_twin({"": twin})


class QnnTwinRunner:
    """Runs a verified twin. ``memory``: limit of its values in bytes. ``how``: a description of what executes it."""

    def __init__(self, source: Graph | HostTwin, memory: int, threads: int | None = None) -> None:
        twin = source if isinstance(source, HostTwin) else HostTwin("", lambda: source)
        runner = twin.runner(DIALECT, memory, threads)
        self.inputs, self.outputs = ([_tensor_desc(t) for t in side] for side in runner.io)
        self._shapes = [end.dims for end in self.inputs]
        self._run, self.how = runner.run, f"host twin ({runner.how})"

    def run(self, inputs: Sequence[Array], profile: Profile | None = None) -> list[Array]:
        """Run on inputs that have been checked."""
        arrays = [np.ascontiguousarray(x).reshape(shape) for x, shape in zip(inputs, self._shapes, strict=True)]
        try:
            return self._run(arrays, None, profile)
        except (ValueError, IndexError, TypeError) as error:
            raise ExecutionError("QNN delegate", f"the host twin does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing to release."""


def _tensor_desc(tensor: TensorSpec) -> TensorDesc:
    return TensorDesc(tensor.name, tensor.shape, str(tensor.dtype))
