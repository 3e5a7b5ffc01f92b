"""Rows of the HTP on the op table's samples: as they are or quantized as their ports say, compiled, and run by
Qualcomm's emulator from the blob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgewright.backends.qualcomm.blob import write_blob
from edgewright.backends.qualcomm.delegate import QnnDelegate
from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.emit import compile_graph
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.options import KEY
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.backends.qualcomm.target import (
    QnnTarget,
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
)
from edgewright.backends.qualcomm.twin import make_twin
from edgewright.formats.twin_reader import read_twin
from edgewright.ir.graph import Array, Graph
from edgewright.runtime.delegates import DelegateBlob
from tests.support import quantized_calls
from tests.support.quantized_calls import Case, Scheme, apart, one_for_transposed_groups

FP16 = 16.5  # bits of samples that are not quantized
# How far the twin may be from the emulator: steps of the last place, or of the largest result. A thousandth of the
# range is 66 steps of 16 bits.
TWIN = {"uint8": 1.0, "uint16": 66.0, "float32": 1e-2}


def scheme(bits: float) -> Scheme:
    dtype = None if bits == FP16 else np.dtype(f"uint{bits}")
    return Scheme(dtype, axis=one_for_transposed_groups, moderate=True, saturates=False)


def cases(op: str, bits: float) -> Iterator[Case]:
    """The op table's own calls of an operator, as they are or quantized."""
    return quantized_calls.cases(op, scheme(bits), BACKEND.rows[op].ports)


def target_for(soc: str = "SM8650") -> QnnTarget:
    return QnnTarget.of(generate_qnn_executorch_compiler_spec(soc, generate_htp_compiler_spec(use_fp16=True)))


@dataclass
class Outcome:
    """What became of a case. ``error``: the largest difference, in steps of the last place, or relative to the largest
    result."""

    rejections: list[str]
    error: float = 0.0


def check(case: Case, soc: str = "SM8650") -> Outcome:
    """Refused by a rule or Qualcomm's validator, or compiled and run."""
    partitioner = QnnPartitioner.for_target(soc)
    why = partitioner.rejections(case.op)
    if why:
        return Outcome(why)
    target = partitioner.target()
    device = to_qnn(case.copy(), target)
    made = emulated_result(device, target, case.inputs)
    _check_twin(case, device, made.reshape(case.wanted.shape))
    return Outcome([], case.off(made))


def emulated_result(device: Graph, target: QnnTarget, inputs: list[Array]) -> Array:
    """What the emulator makes of a graph of one result, from its blob."""
    context = compile_graph(device, target, "forward")
    delegate = QnnDelegate(DelegateBlob("QnnBackend", write_blob(context), {KEY: target.value}, {}))
    try:
        (made,) = delegate.execute(inputs)
    finally:
        delegate.close()
    return made


def twin_result(device: Graph, inputs: list[Array]) -> Array:
    """What the host twin makes of it, from its bytes."""
    twin = make_twin(device)
    assert twin is not None
    graph = read_twin(twin)[""]
    DIALECT.check(graph, 1 << 32)
    (made,) = DIALECT.execute(graph, inputs)
    return made


def _check_twin(case: Case, device: Graph, emulated: Array) -> None:
    """The host twin says what the emulator says."""
    made = twin_result(device, case.inputs)
    known = case.known
    off = apart(made.reshape(emulated.shape)[known], emulated[known])
    limit = TWIN.get(str(emulated.dtype), 0.0)
    assert off <= limit, f"{case.name}: the twin is off by {off} {emulated.dtype}"
