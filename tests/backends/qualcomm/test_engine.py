"""Host twins on the engine: what the operators mean, integers bit for bit. ``-m slow`` runs every row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgewright import engine
from edgewright.backends.qualcomm import QuantDtype
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.backends.qualcomm.twin import TwinRunner
from edgewright.ir.deserialize import read_twin
from edgewright.ir.opset import OPS
from edgewright.ir.qnn.execute import execute
from edgewright.ir.qnn.twin import missing, to_twin
from edgewright.program.lower import to_edge_transform_and_lower
from edgewright.pte.reader import read_program
from tests.backends.qualcomm.lowered import quantize
from tests.backends.qualcomm.rows import FP16, cases
from tests.backends.qualcomm.test_models import cifarnet

ROWS = [name for name in BACKEND.rows if name in OPS]
FEW = ("conv2d", "conv1d", "linear", "add", "mul", "sigmoid", "leaky_relu", "max_pool2d", "mean", "cat", "slice",
       "view", "upsample_bilinear2d", "softmax", "topk")  # fmt: skip


def tried(op: str, bits: float, most: int) -> int:
    count = 0
    for index, case in enumerate(cases(op, bits)):
        partitioner = QnnPartitioner.for_simulation("SM8650")
        if index >= most:
            break
        if partitioner.refusals(case.op):
            continue
        device = to_qnn(case.copy(), partitioner.target())
        assert not missing(device), case.name
        twin = to_twin(device)
        given = [np.asarray(a).reshape(v.bound) for a, v in zip(case.inputs, twin.inputs, strict=True)]
        for wanted, found in zip(execute(twin, given), TwinRunner(twin, 1 << 30, 1).run(given), strict=True):
            assert (wanted.shape, wanted.dtype) == (found.shape, found.dtype)
            assert np.array_equal(wanted, found, equal_nan=wanted.dtype.kind == "f"), case.name
        count += 1
    return count


@pytest.mark.parametrize("op", FEW)
def test_rows_of_bytes(op: str) -> None:
    assert tried(op, 8, 2)


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("bits", [FP16, 8, 16])
def test_every_row(op: str, bits: float) -> None:
    tried(op, bits, 8)


def test_a_network_of_bytes_is_machine_code() -> None:
    """Every step is a kernel, and the results are the reference's."""
    model, inputs = cifarnet()
    exported = torch.export.export(quantize(model, inputs, QuantDtype.use_8a8w), inputs)
    partitioner = QnnPartitioner.for_simulation("SM8650")
    program = read_program(
        bytes(to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch().buffer)
    )
    (graph,) = read_twin(bytes(program.blob(program.execution_plan[0].delegates[0]))).values()
    compiled = engine.compile(graph, threads=1, numerics="qnn")
    assert not [step.label for step in compiled.plan.steps if step.python is not None]
    given = [x.numpy() for x in inputs]
    (wanted,), (found,) = execute(graph, given), compiled.run(given)
    assert np.array_equal(wanted, found)
