"""Programs that were decomposed before they came here, as others save them: what they are made of is found again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import edgewright as ew


@pytest.mark.parametrize("target", ["xnnpack", "sm8650", "e9955"])
def test_linear_layers_of_decomposed_programs_are_taken(target: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    program = torch.export.export(model, (torch.randn(2, 8),)).run_decompositions()
    assert any(node.target is torch.ops.aten.addmm.default for node in program.graph.nodes)
    report = ew.compile(program, target=target, quiet=True).report
    assert report.coverage["macs"] == 1
    assert report.sqnr is not None and report.sqnr > 40


def test_other_products_with_a_sum_keep_their_meaning() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))
            self.grid = nn.Parameter(torch.randn(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            plain = torch.addmm(self.bias, x, self.weight)
            turned = torch.addmm(self.bias, plain, self.weight.t())
            scaled = torch.addmm(self.bias, turned, self.weight.t(), beta=0.5, alpha=2)
            return torch.addmm(self.grid, scaled, self.weight.transpose(1, 0))

    torch.manual_seed(0)
    result = ew.compile(Product().eval(), (torch.randn(2, 4),), target="xnnpack", quiet=True)
    assert result.report.sqnr is not None and result.report.sqnr > 100
