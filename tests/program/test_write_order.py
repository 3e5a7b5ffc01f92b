"""Writes to several buffers: each gets what was to be written to it, whatever the others get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from edgewright import Runtime, to_edge, to_edge_transform_and_lower
from edgewright.backends.xnnpack import XnnpackPartitioner
from edgewright.formats import read_program
from tests.support.stock import stock

Step = Callable[["Pair", torch.Tensor], torch.Tensor]


class Pair(nn.Module):
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", torch.ones(2))
        self.register_buffer("c", torch.full((2,), 3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def same_value(m: Pair, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    m.a.copy_(y)
    m.b.copy_(y)
    return m.a + m.b


def same_input(m: Pair, x: torch.Tensor) -> torch.Tensor:
    m.a.copy_(x)
    m.b.copy_(x)
    m.c.copy_(x)
    return m.a + m.b + m.c


def forward_chain(m: Pair, x: torch.Tensor) -> torch.Tensor:
    y = m.a + 10 * m.b + 100 * m.c
    m.a.copy_(m.b)
    m.b.copy_(m.c)
    m.c.copy_(x)
    return y


def backward_chain(m: Pair, x: torch.Tensor) -> torch.Tensor:
    y = m.a + 10 * m.b + 100 * m.c
    m.c.copy_(m.b)
    m.b.copy_(m.a)
    m.a.copy_(x)
    return y


def to_input(m: Pair, x: torch.Tensor) -> torch.Tensor:
    y = x + m.a
    x.copy_(m.a)
    m.a.add_(1)
    return y + x


STEPS = [same_value, same_input, forward_chain, backward_chain, to_input]


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]], ids=["portable", "xnnpack"])
@pytest.mark.parametrize("step", STEPS)
def test_state_is_written_as_in_torch(step: Step, partitioner: Any) -> None:
    exported = torch.export.export(Pair(step), (torch.ones(2),))
    program = bytes(to_edge_transform_and_lower(exported, partitioner=partitioner).to_executorch().buffer)
    method, eager = Runtime.get().load_program(program).load_method(), Pair(step)
    calls = [torch.tensor([1.0, 2.0]) * n for n in range(1, 5)]
    expected = [eager(x.clone()).tolist() for x in calls]
    assert [method.execute([x.clone()])[0].tolist() for x in calls] == expected
    if step is not to_input:  # stock has no inputs that are written
        assert [o[0].tolist() for o in stock().run_many(program, "forward", [[x.numpy()] for x in calls])] == expected


def rotate(m: Pair, x: torch.Tensor) -> torch.Tensor:
    """Each gets the other's old value; torch itself would need a copy."""
    a = m.a + 0
    m.a.copy_(m.b)
    m.b.copy_(a)
    return m.a - 2 * m.b + x


def test_a_cycle_of_writes_goes_through_a_copy() -> None:
    exported = torch.export.export(Pair(rotate), (torch.ones(2),))
    edge = to_edge(exported)
    graph = edge.exported_program().graph
    output: Any = graph.output_node()
    states = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    first, second = output.args[0][:2]
    assert first is states["b_b"]
    second.replace_all_uses_with(states["b_a"])  # as a pass may: what is added is zero
    graph.eliminate_dead_code()
    program = edge.to_executorch().buffer
    plan = read_program(program).execution_plan[0]
    calls = [plan.operators[call.op_index].key for call in plan.chains[0].instructions]
    assert calls[-3:] == ["dim_order_ops::_clone_dim_order.out", "aten::copy_", "aten::copy_"]
    method, eager = Runtime.get().load_program(program).load_method(), Pair(rotate)
    for n in range(4):
        x = torch.full((2,), float(n))
        assert method.execute([x])[0].tolist() == eager(x).tolist()
