"""Whole networks lowered to XNNPACK: the engine computes what the reference does, and hardly anything in Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.backends.xnnpack.partitioner import XnnpackPartitioner
from edgewright.engine import compile
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph
from edgewright.program.edge import to_edge_transform_and_lower
from edgewright.runtime import Runtime
from tests.backends import networks
from tests.backends.quantized import converted, quantizer
from tests.engine.graphs import cpus, dirty
from tests.program.networks import MobileNetV2


class ShortMobileNetV2(MobileNetV2):
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2))


def short_mobilenet_v2() -> networks.Made:
    torch.manual_seed(13)
    return ShortMobileNetV2().eval(), (torch.randn(1, 3, 64, 64),)


NETWORKS = {**networks.NETWORKS, "mobilenet_v2_short": short_mobilenet_v2}
CONVOLUTIONAL = (*networks.CONVOLUTIONAL, "mobilenet_v2_short")
MACHINES = [(cpus()[0], 1), (cpus()[-1], 2)]


@cache
def graphs(name: str, quantize: bool) -> list[Graph]:
    """The device graphs of a network's delegates."""
    model, inputs = NETWORKS[name]()
    model = model.eval().requires_grad_(False)
    chosen: Any = converted(model, inputs, quantizer(is_per_channel=True)) if quantize else model
    lowered = to_edge_transform_and_lower(torch.export.export(chosen, inputs), partitioner=[XnnpackPartitioner()])
    loaded: Any = Runtime.get().load_program(lowered.to_executorch().buffer).load_method("forward")
    method = getattr(loaded, "_method", loaded)
    return [d._graph for d in method._delegates if not any(v.dynamic for v in d._graph.values())]


def contents(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    return [
        rng.integers(-128, 128, v.bound).astype(np.int8) if v.q else rng.standard_normal(v.bound).astype(v.dtype)
        for v in graph.inputs
    ]


def check(graph: Graph, cpu: str, threads: int, bound: float) -> None:
    given = contents(graph)
    compiled = compile(graph, threads=threads, cpu=cpu)
    dirty(compiled)
    wanted = Executor(graph, XNNPACK).run(given)
    for _ in range(2):
        for got, want in zip(compiled.run(given), wanted, strict=True):
            assert got.shape == want.shape
            scale = max(float(np.abs(want).max(initial=0)), 1e-6)
            assert float(np.abs(got.astype(np.float64) - want).max(initial=0)) <= bound * scale


@pytest.mark.sample("cifarnet", "upscaler")
@pytest.mark.parametrize(("cpu", "threads"), MACHINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_float32_networks(name: str, cpu: str, threads: int) -> None:
    for graph in graphs(name, False):
        check(graph, cpu, threads, 2e-5)


@pytest.mark.sample("cifarnet", "mobilenet_v2_short")
@pytest.mark.parametrize(("cpu", "threads"), MACHINES)
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_int8_networks_are_equal(name: str, cpu: str, threads: int) -> None:
    """Softmax and the like are float32 even there; everything before them is the same to the bit."""
    for graph in graphs(name, True):
        check(graph, cpu, threads, 1e-6 if "softmax" in {op.name for op in graph.ops} else 0)


@pytest.mark.sample("cifarnet", "mobilenet_v2_short")
@pytest.mark.parametrize("name", CONVOLUTIONAL)
@pytest.mark.parametrize("quantize", [False, True])
def test_convolutional_networks_run_without_python(name: str, quantize: bool) -> None:
    assert graphs(name, quantize)
    for graph in graphs(name, quantize):
        left = [s.label for s in compile(graph, threads=1).plan.steps if s.python is not None]
        assert left == []


def labels(graph: Graph) -> Sequence[str]:
    return [s.label for s in compile(graph, threads=1).plan.steps]


def test_what_follows_a_convolution_is_done_with_it() -> None:
    (graph,) = graphs("mobilenet_v2_short", True)
    assert "conv2d+add" in labels(graph)
    (graph,) = graphs("mobilenet_v3", True)
    assert any(label.endswith("convert+hardswish+convert") for label in labels(graph))
