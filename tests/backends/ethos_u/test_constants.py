"""Tensors that depend on no input do not divide a delegate; branches and loops stay on the CPU, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from edgewright import to_edge_transform_and_lower
from edgewright.backends.ethos_u import EthosUCompileSpec, EthosUPartitioner, EthosUQuantizer
from edgewright.backends.ethos_u import get_symmetric_quantization_config as symmetric
from edgewright.backends.table import CONTROL_FLOW
from edgewright.lowering.partition import PartitionReport
from edgewright.quantize.pt2e import convert_pt2e, prepare_pt2e

X = (torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8),)
CREATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "arange": lambda y: y + torch.arange(8.0) * 0.1,
    "eye": lambda y: y * torch.eye(8),
    "fill": lambda y: y + torch.fill(y, 0.5),
    "full": lambda y: y + torch.full((8,), 0.25),
    "ones": lambda y: y + torch.ones(8, 8),
    "scalar_tensor": lambda y: y + torch.scalar_tensor(0.5),
    "zeros": lambda y: torch.cat([y, torch.zeros(1, 4, 8, 8)], 2),
}


class Net(torch.nn.Module):
    def __init__(self, between: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.between = torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 4, 1), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.between(torch.relu(self.first(x))))


def report(between: Callable[[torch.Tensor], Any], target: str) -> PartitionReport:
    spec = EthosUCompileSpec(target)
    module = torch.export.export(Net(between).eval(), X).module()
    prepared = prepare_pt2e(module, EthosUQuantizer(spec).set_global(symmetric()))
    prepared(*X)
    quantized = torch.export.export(convert_pt2e(prepared), X)
    lowered = to_edge_transform_and_lower(quantized, partitioner=[EthosUPartitioner(spec)])
    return lowered.partition_reports["forward"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CREATED)
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_created_tensors_are_constants_of_one_delegate(name: str, target: str) -> None:
    found = report(CREATED[name], target)
    assert found.groups == 1
    assert {v.operator for v in found.rejected} == {"quantize", "dequantize"}


CONTROL = {
    "cond": lambda y: torch.cond(y.sum() > 0, lambda y: y + 1, lambda y: y * 2, (y,)),
    "while_loop": lambda y: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 1), (torch.tensor(0), y))[1],
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_stays_on_the_cpu(name: str) -> None:
    found = report(CONTROL[name], "ethos-u55-128")
    assert next(v.rejections for v in found.rejected if v.operator == name) == [CONTROL_FLOW]
    assert found.delegated
