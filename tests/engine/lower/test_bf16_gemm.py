"""Products of real numbers rounded to 16 bits, which only ``EDGEWRIGHT_BF16=1`` asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import compile
from edgewright.engine.isa import _machine, host_isa
from edgewright.errors import UsageError
from edgewright.ir.core.execute import Executor
from edgewright.ir.dtypes import bfloat16
from edgewright.ir.graph import Graph, Op
from tests.engine.graphs import constant, dirty, random, real
from tests.engine.lower.test_conv import conv

has_it = pytest.mark.skipif(not _machine()[1].get("avx512bf16"), reason="no AVX512_BF16 on this processor")
SHAPES = [((1, 9, 9, 24), 40), ((2, 7, 5, 64), 100), ((1, 1, 1, 96), 33), ((3, 4, 4, 18), 7), ((1, 20, 1, 130), 16)]


def rounded(data: Any) -> Any:
    return np.asarray(data).astype(bfloat16).astype(np.float32)


def kernels(graph: Graph) -> list[str]:
    return [step.kernel.rpartition("_")[0] for step in compile(graph, 1).plan.steps]


@has_it
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("shape", "channels"), SHAPES)
def test_products_of_rounded_operands(monkeypatch: pytest.MonkeyPatch, shape: Any, channels: int, threads: int) -> None:
    """As the reference computes them from operands that were rounded before, in single precision."""
    monkeypatch.setenv("EDGEWRIGHT_BF16", "1")
    graph = conv(shape, channels, (1, 1), limits=(-1.0, 2.0))
    x = random(graph.inputs[0])
    made = compile(graph, threads)
    assert any(step.kernel.startswith("gemm_bf16") for step in made.plan.steps)
    dirty(made)
    (got,) = made.run([x])
    weight = graph.ops[0].args["weight"]
    graph.ops[0].args["weight"] = constant(rounded(weight.data))
    (want,) = Executor(graph, XNNPACK).run([rounded(x)])
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


@has_it
def test_a_sum_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWRIGHT_BF16", "1")
    graph = conv((1, 6, 6, 32), 32, (1, 1))
    (x,), middle, out = graph.inputs, graph.outputs[0], real("z", 1, 6, 6, 32)
    graph.ops.append(Op("core.add", {"self": middle, "other": x}, [out]))
    graph.outputs[0] = out
    given = random(x)
    (want,) = Executor(graph, XNNPACK).run([given])
    made = compile(graph, 1)
    assert [s.label for s in made.plan.steps if s.kernel.startswith("gemm_bf16")] == ["conv2d+add"]
    (got,) = made.run([given])
    assert 0 < np.abs(got - want).max() <= 1e-2 * np.abs(want).max()


def test_nobody_gets_it_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEWRIGHT_BF16", raising=False)
    assert "gemm_bf16" not in kernels(conv((1, 9, 9, 24), 40, (1, 1)))
    assert not host_isa().bf16


@has_it
@pytest.mark.parametrize(
    ("shape", "kernel"), [((1, 9, 9, 24), (3, 3)), ((1, 9, 9, 25), (1, 1)), ((1, 9, 9, 8), (1, 1))]
)
def test_others_stay_in_single_precision(monkeypatch: pytest.MonkeyPatch, shape: Any, kernel: Any) -> None:
    monkeypatch.setenv("EDGEWRIGHT_BF16", "1")
    assert "gemm_bf16" not in kernels(conv(shape, 40, kernel))


@pytest.mark.parametrize(("asked", "cpu"), [("2", ""), ("1", "avx2")])
def test_what_cannot_be_had(monkeypatch: pytest.MonkeyPatch, asked: str, cpu: str) -> None:
    monkeypatch.setenv("EDGEWRIGHT_BF16", asked)
    with pytest.raises(UsageError, match="EDGEWRIGHT_BF16"):
        host_isa(cpu)
