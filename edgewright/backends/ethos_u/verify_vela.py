"""Verifies Vela's output: runs its command stream and the TOSA graph on the same random inputs and compares bits.

Vela silently miscompiles some rare combinations of operators, so ``verify=True`` tests the compiled result itself
instead of trusting the compiler. This is translation validation by testing: the reference is the TOSA graph on the
engine, the subject is the command stream on the NPU simulator, and both compute exact integers, so any difference is an
error.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import npu
from edgewright.backends.ethos_u.dialect.numerics import TOSA_NUMERICS
from edgewright.backends.ethos_u.vela import VelaOutput
from edgewright.engine.runner import make_runner
from edgewright.errors import VendorError
from edgewright.ir.graph import Array, Graph, Value

log = logging.getLogger("edgewright.ethos_u")
_MEMORY = 16 << 30  # bytes; the graph is trusted


def verify_commands(device: Graph, compiled: VelaOutput, target: str) -> None:
    """Raise unless the commands compute what the graph computes. Only for NPUs that are simulated here."""
    reason = npu.supported(target)
    if reason is not None:
        raise VendorError(f"Vela for {target}", f"cannot be checked here: {reason}", remedy="Leave out verify=True.")
    rng = np.random.default_rng(0)
    inputs = [_random_input(value, rng) for value in device.inputs]
    expected = make_runner(lambda: device, TOSA_NUMERICS, _MEMORY).run(inputs)
    for i, (actual, reference) in enumerate(zip(_simulate(compiled, inputs), expected, strict=True)):
        mismatches = int(np.count_nonzero(actual.view(reference.dtype) != reference.ravel()))
        if mismatches:
            remedy = "Exclude operators around it from the partitioner, and report the graph to Arm."
            rule = (
                f"must compute the same results as the graph: output {i} differs in {mismatches} of"
                f" {reference.size} elements"
            )
            raise VendorError(f"Vela for {target}", rule, remedy=remedy)
    log.info("Vela's commands for %s compute what the graph computes, bit for bit, on random inputs", target)


def _random_input(value: Value, rng: np.random.Generator) -> Array:
    if value.dtype == np.bool_:
        return rng.integers(0, 2, value.bound).astype(np.bool_)
    limits: Any = np.iinfo(value.dtype)
    maximum = min(limits.max, 32767)  # also keeps int32 indices and sums small
    return rng.integers(max(limits.min, -maximum), maximum, value.bound, endpoint=True).astype(value.dtype)


def _simulate(compiled: VelaOutput, inputs: list[Array]) -> list[Array]:
    scratch, fast = np.zeros(compiled.scratch_size, np.uint8), np.zeros(compiled.fast_scratch_size, np.uint8)
    for tensor, array in zip(compiled.inputs, inputs, strict=True):
        scratch[tensor.offset : tensor.offset + tensor.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()
    npu.run(npu.decode(bytes(compiled.cmd_data)), weights=bytes(compiled.weight_data), scratch=scratch,
            fast_scratch=fast)  # fmt: skip
    return [scratch[t.offset : t.offset + t.nbytes] for t in compiled.outputs]
