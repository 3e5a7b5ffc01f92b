"""Every row's samples on a simulated NPU, twice: the second run, compiled, gives what the first gives."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from edgewright.backends.ethos_u.npu import decode, run
from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.ethos_u.tosa_file import write_tosa
from edgewright.backends.ethos_u.vela import VelaOutput, compile_tosa
from edgewright.ir.aten.ops import OPS
from tests.backends.ethos_u.rows import cases

SPEC = EthosUCompileSpec("ethos-u55-128")


def outputs(compiled: VelaOutput, program: Any, weights: bytes, inputs: list[Any]) -> list[np.ndarray]:
    scratch, fast = (np.zeros(n, np.uint8) for n in (compiled.scratch_size, compiled.fast_scratch_size))
    for tensor, array in zip(compiled.inputs, inputs, strict=True):
        raw = np.ascontiguousarray(array).view(np.uint8).ravel()
        scratch[tensor.offset : tensor.offset + raw.size] = raw
    run(program, weights=weights, scratch=scratch, fast_scratch=fast)
    return [scratch[t.offset : t.offset + t.nbytes].copy() for t in compiled.outputs]


def same(sample: Any) -> None:
    device = to_tosa(sample.copy(), SPEC)
    sizes = [[v.nbytes for v in side] for side in (device.inputs, device.outputs)]
    compiled = compile_tosa(write_tosa(device), SPEC, inputs=sizes[0], outputs=sizes[1])
    program, weights = decode(compiled.cmd_data), bytes(compiled.weight_data)
    with patch.dict(os.environ, {"EDGEWRIGHT_ENGINE": "reference"}):
        first = outputs(compiled, program, weights, sample.inputs)
    for _ in range(2):
        for made, wanted in zip(outputs(compiled, program, weights, sample.inputs), first, strict=True):
            np.testing.assert_array_equal(made, wanted, sample.name)


@pytest.mark.slow
@pytest.mark.parametrize("op", [name for name in BACKEND.rows if name in OPS])
def test_rows_run_again(op: str) -> None:
    for sample in islice((s for s in cases(op) if not BACKEND.rejections(s.op, SPEC)), 4):
        same(sample)
