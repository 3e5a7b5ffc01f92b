"""Rows of the Ethos-U on the op table's samples: quantized as their ports say, lowered, compiled by Vela, and run.

What Vela compiled (or, where no simulator is, the host twin) must give the TOSA reference model's integers, and those
must be the operator's own result within a step or two of the last place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import tosa_reference_model

from edgewright.backends.ethos_u.dialect import DIALECT
from edgewright.backends.ethos_u.npu import decode, run, supported
from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.ethos_u.vela import VelaOutput, compile_tosa
from edgewright.ir.graph import Array, Value
from edgewright.ir.ports import Port
from tests.backends.ethos_u.capture import quiet
from tests.support import quantized_calls
from tests.support.quantized_calls import Case, Scheme


def scheme(bits: int) -> Scheme:
    return Scheme(np.dtype(f"int{bits}"), narrow=True)


def ports(op: str) -> Mapping[str, Port]:
    return BACKEND.rows[op].ports if op in BACKEND.rows else {}


def cases(op: str, bits: int = 8) -> Iterator[Case]:
    """The op table's own calls of an operator, quantized."""
    return quantized_calls.cases(op, scheme(bits), ports(op))


@dataclass
class Outcome:
    """What became of a case on a target. ``steps``: how far from the operator's own result, in its last place."""

    rejections: list[str]
    steps: int = 0
    compiled: VelaOutput | None = None


def check(case: Case, target: str) -> Outcome:
    """Refused by a rule, or compiled and run with the reference model's integers."""
    spec = EthosUCompileSpec(target)
    why = [str(r) for r in BACKEND.rejections(case.op, spec)]
    if why:
        return Outcome(why)
    device = to_tosa(case.copy(), spec)
    tosa = write_tosa(device)
    twin = DIALECT.execute(device, case.inputs)  # first: it checks shapes, where the reference model would crash
    with quiet():
        made, _ = tosa_reference_model.run(
            tosa, [_given(a, v) for a, v in zip(case.inputs, device.inputs, strict=True)]
        )
    for a, b in zip(made, twin, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b), f"{case.name}: the twin differs from the reference model"
    compiled = compile_tosa(
        tosa, spec, inputs=[a.nbytes for a in case.inputs], outputs=[o.nbytes for o in device.outputs]
    )
    if supported(target) is None:
        for a, b in zip(made, simulate(compiled, case.inputs, twin), strict=True):
            assert np.array_equal(a, b), f"{case.name}: the commands differ from the reference model on {target}"
    return Outcome([], int(case.off(made[0])), compiled)


def _given(array: Array, value: Value) -> Array:
    return np.ascontiguousarray(array).reshape(value.bound)


def simulate(compiled: VelaOutput, inputs: list[Array], like: list[Array]) -> list[Array]:
    """Run what Vela made on the simulator."""
    scratch = np.zeros(compiled.scratch_size, np.uint8)
    fast = np.zeros(compiled.fast_scratch_size, np.uint8)
    for tensor, array in zip(compiled.inputs, inputs, strict=True):
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        scratch[tensor.offset : tensor.offset + raw.size] = raw
    run(decode(compiled.cmd_data), weights=compiled.weight_data, scratch=scratch, fast_scratch=fast)
    return [
        scratch[t.offset : t.offset + a.nbytes].view(a.dtype).reshape(a.shape)
        for t, a in zip(compiled.outputs, like, strict=True)
    ]
