"""Host twins on the engine: what the operators mean, integers bit for bit. ``-m slow`` runs every row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgewright import engine
from edgewright.backends.qualcomm import QuantDtype
from edgewright.backends.qualcomm.dialect import DIALECT
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.backends.qualcomm.dialect.twin import to_twin, unsupported_ops
from edgewright.backends.qualcomm.ops import BACKEND
from edgewright.backends.qualcomm.partitioner import QnnPartitioner, to_qnn
from edgewright.formats.pte_reader import read_program
from edgewright.formats.twin_reader import read_twin
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array
from edgewright.program.edge import to_edge_transform_and_lower
from tests.backends.qualcomm.lowered import quantize
from tests.backends.qualcomm.rows import FP16, cases
from tests.backends.qualcomm.test_models import block, cifarnet
from tests.engine.vendors import cpus

ROWS = [name for name in BACKEND.rows if name in OPS]
FEW = ("conv2d", "conv1d", "linear", "add", "mul", "sigmoid", "leaky_relu", "max_pool2d", "mean", "cat", "slice",
       "view", "upsample_bilinear2d", "softmax", "layer_norm", "bmm", "topk")  # fmt: skip


def same(wanted: Array, found: Array) -> bool:
    """Integers bit for bit. Real numbers to two steps of half precision: sums before are in another order."""
    if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
        return False
    if wanted.dtype.kind != "f":
        return np.array_equal(wanted, found)
    known = np.isfinite(wanted)
    apart = np.abs(wanted[known].astype(np.float64) - found[known])
    largest = np.abs(wanted[known]).max(initial=1e-3)
    return np.array_equal(known, np.isfinite(found)) and bool(
        (apart <= np.abs(wanted[known]) * 2.0**-9 + largest * 2.0**-14).all()
    )


def tried(op: str, bits: float, most: int) -> int:
    """Samples of a row, with each instruction set: what the operators mean."""
    count = 0
    for index, case in enumerate(cases(op, bits)):
        partitioner = QnnPartitioner.for_simulation("SM8650")
        if index >= most:
            break
        if partitioner.rejections(case.op):
            continue
        device = to_qnn(case.copy(), partitioner.target())
        assert not unsupported_ops(device), case.name
        twin = to_twin(device)
        DIALECT.check(twin, 1 << 30)
        given = [np.asarray(a).reshape(v.bound) for a, v in zip(case.inputs, twin.inputs, strict=True)]
        reference = DIALECT.execute(twin, given)
        for cpu in cpus():
            made = engine.compile(twin, threads=1, numerics=QNN, cpu=cpu).run(given)
            assert all(same(w, f) for w, f in zip(reference, made, strict=True)), (case.name, cpu)
        count += 1
    return count


@pytest.mark.sample(4)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("op", FEW)
def test_rows_of_integers(op: str, bits: int) -> None:
    assert tried(op, bits, 2)


@pytest.mark.parametrize("op", ["conv2d", "mul", "layer_norm", "mean"])
def test_rows_of_real_numbers(op: str) -> None:
    assert tried(op, FP16, 2)


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("bits", [FP16, 8, 16])
def test_every_row(op: str, bits: float) -> None:
    tried(op, bits, 8)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("make", "scheme"),
    [(cifarnet, QuantDtype.use_8a8w), (cifarnet, QuantDtype.use_16a8w), (block, QuantDtype.use_16a4w), (block, None)],
)
def test_a_network_is_machine_code(make, scheme) -> None:
    """Every step is a kernel, and the results are the reference's."""
    model, inputs = make()
    chosen = model if scheme is None else quantize(model, inputs, scheme)
    exported = torch.export.export(chosen, inputs)
    partitioner = QnnPartitioner.for_simulation("SM8650")
    program = read_program(
        bytes(to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch().buffer)
    )
    (graph,) = read_twin(bytes(program.blob(program.execution_plan[0].delegates[0]))).values()
    compiled = engine.compile(graph, threads=1, numerics=QNN)
    assert not [step.label for step in compiled.plan.steps if step.python is not None]
    given = [x.numpy() for x in inputs]
    (wanted,), (found,) = DIALECT.execute(graph, given), compiled.run(given)
    if scheme is None:
        assert np.abs(wanted - found).max() <= 2.0**-8 * np.abs(wanted).max()
    else:
        assert np.array_equal(wanted, found)
