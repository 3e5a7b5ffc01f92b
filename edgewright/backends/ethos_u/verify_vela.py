"""Proof that what Vela made of a graph is the graph: its commands and the graph run on the same random numbers.

Vela is known to make wrong commands without a word, in rare arrangements of operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import npu
from edgewright.backends.ethos_u.vela import Compiled
from edgewright.engine.runner import make_runner
from edgewright.errors import VendorError
from edgewright.ir.graph import Array, Graph, Value
from edgewright.ir.numerics import TOSA

_MEMORY = 16 << 30  # bytes: the graph is our own


def prove(device: Graph, compiled: Compiled, target: str) -> None:
    """Raise unless the commands compute what the graph says. For NPUs that are simulated here."""
    why = npu.supported(target)
    if why is not None:
        raise VendorError(f"Vela for {target}", f"cannot be checked here: {why}", remedy="Leave out verify=True.")
    random = np.random.default_rng(0)
    inputs = [_noise(value, random) for value in device.inputs]
    expected = make_runner(lambda: device, TOSA, _MEMORY).run(inputs)
    for i, (found, wanted) in enumerate(zip(_simulated(compiled, inputs), expected, strict=True)):
        wrong = int(np.count_nonzero(found.view(wanted.dtype) != wanted.ravel()))
        if wrong:
            remedy = "Exclude operators around it from the partitioner, and report the graph to Arm."
            rule = f"must compute the graph it was given: output {i} differs in {wrong} of {wanted.size} elements"
            raise VendorError(f"Vela for {target}", rule, remedy=remedy)


def _noise(value: Value, random: np.random.Generator) -> Array:
    if value.dtype == np.bool_:
        return random.integers(0, 2, value.bound).astype(np.bool_)
    limits: Any = np.iinfo(value.dtype)
    wide = min(limits.max, 32767)  # indices and sums are small numbers, too
    return random.integers(max(limits.min, -wide), wide, value.bound, endpoint=True).astype(value.dtype)


def _simulated(compiled: Compiled, inputs: list[Array]) -> list[Array]:
    scratch, fast = np.zeros(compiled.scratch_size, np.uint8), np.zeros(compiled.fast_scratch_size, np.uint8)
    for tensor, array in zip(compiled.inputs, inputs, strict=True):
        scratch[tensor.offset : tensor.offset + tensor.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()
    npu.run(npu.decode(bytes(compiled.cmd_data)), weights=bytes(compiled.weight_data), scratch=scratch,
            fast_scratch=fast)  # fmt: skip
    return [scratch[t.offset : t.offset + t.nbytes] for t in compiled.outputs]
