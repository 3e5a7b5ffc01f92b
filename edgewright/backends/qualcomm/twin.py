"""The host twin of a blob: the compiler's input graph, for machines without Qualcomm's libraries.

The engine runs it: integers are bit-exact with ``ir/qnn``, floating point is stored in fp16. The emulator's results are
the device's; the twin's results are within one quantization step of them, per operator.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.emulator import End
from edgewright.engine.plan import TensorSpec
from edgewright.errors import ExecutionError
from edgewright.formats.twin_writer import write_twin
from edgewright.ir.graph import Graph
from edgewright.ir.numerics import QNN
from edgewright.ir.qnn.check import check
from edgewright.ir.qnn.twin import to_twin, unsupported_ops
from edgewright.runtime.twin_delegate import HostTwin

Array = np.ndarray[Any, Any]
log = logging.getLogger("edgewright.qualcomm")


def make_twin(device: Graph) -> bytes | None:
    """The twin of a device graph; None, and a word about it, if an operator has no meaning here."""
    unknown = unsupported_ops(device)
    if unknown:
        log.warning("no host twin: %s can be run by the emulator and by devices only", ", ".join(unknown))
        return None
    return write_twin({"": to_twin(device)})


class TwinRunner:
    """A checked twin. ``memory``: bytes that its values may take. ``how`` says what runs it."""

    def __init__(self, source: Graph | HostTwin, memory: int, threads: int | None = None) -> None:
        twin = source if isinstance(source, HostTwin) else HostTwin("", lambda: source)
        runner = twin.runner(check, QNN, memory, threads)
        self.inputs, self.outputs = ([_end(t) for t in side] for side in runner.ends)
        self._shapes = [end.dims for end in self.inputs]
        self._run, self.how = runner.run, f"host twin ({runner.how})"

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs for inputs that were checked."""
        given = [np.ascontiguousarray(x).reshape(shape) for x, shape in zip(inputs, self._shapes, strict=True)]
        try:
            return self._run(given)
        except (ValueError, IndexError, TypeError) as error:
            raise ExecutionError("QNN delegate", f"the host twin does not run: {error}"[:200]) from error

    def close(self) -> None:
        """Nothing is held but memory."""


def _end(tensor: TensorSpec) -> End:
    return End(tensor.name, tensor.shape, str(tensor.dtype))
