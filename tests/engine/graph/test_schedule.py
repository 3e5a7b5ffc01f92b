"""Scheduling: which inputs and outputs kernels use in the caller's memory, and at which cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edgewright.engine import make_plan
from edgewright.engine.graph.nodes import Node
from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import compare, cpus, graph, real


def sums(count: int) -> Graph:
    """``count`` sums of two inputs each; every sum is an output."""
    inputs = [real(f"x{i}", 1, 4 + i) for i in range(count)]
    outputs = [real(f"y{i}", 1, 4 + i) for i in range(count)]
    ops = [Op("core.add", {"self": x, "other": x}, [y]) for x, y in zip(inputs, outputs, strict=True)]
    return graph(inputs, outputs, *ops)


@pytest.mark.parametrize("count", [50, 100])
def test_work_grows_linearly_with_inputs_and_outputs(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    reads = Node.reads

    def counted(node: Node) -> Iterator[Value]:
        calls.append(node)
        return reads(node)

    monkeypatch.setattr(Node, "reads", counted)
    make_plan(sums(count))
    assert len(calls) <= 40 * count


def test_an_input_may_also_be_an_output() -> None:
    x, y = real("x", 2, 3), real("y", 2, 3)
    made = graph([x], [x, y], Op("core.add", {"self": x, "other": x}, [y]))
    compare(made, [np.arange(6, dtype=np.float32).reshape(2, 3)], cpus()[0])
