"""Programs that were decomposed before they came here, as others save them: what they are made of is found again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import edgewright as ew


@pytest.mark.parametrize("target", ["xnnpack", "sm8650", "e9955"])
def test_linear_layers_of_decomposed_programs_are_delegated(target: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    program = torch.export.export(model, (torch.randn(2, 8),)).run_decompositions()
    assert any(node.target is torch.ops.aten.addmm.default for node in program.graph.nodes)
    report = ew.compile(program, target=target, quiet=True).report
    assert report.coverage["macs"] == 1
    assert report.sqnr is not None and report.sqnr > 40


class Attention(nn.Module):
    """Of tokens that see what a mask says."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        query, key, value = (part(x) for part in self.parts)
        return x + nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@pytest.mark.sample(2)
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(("target", "precision", "decibels"), [
    ("xnnpack", None, 100), ("sm8650", None, 50), ("e9955", None, 50), ("sm8650", "int8", 33), ("e9955", "int8", 33),
    ("ethos-u85-256", "int8", 33), ("imxrt700", "int8", 33),
])  # fmt: skip
def test_rows_that_are_masked_entirely_attend_to_nothing(
    target: str, precision: str | None, decibels: float, decomposed: bool
) -> None:
    torch.manual_seed(0)
    mask = torch.zeros(6, 6).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
    mask[2] = -torch.inf
    inputs = torch.randn(1, 6, 8), mask
    program = torch.export.export(Attention().eval(), inputs)
    if decomposed:
        program = program.run_decompositions()
    simulate = True if target == "sm8650" else None
    calibration = [inputs] if precision else None
    made = ew.compile(
        program, target=target, quantize=precision, calibration=calibration, simulate=simulate, quiet=True
    )
    assert made.report.coverage["macs"] == 1
    assert made.report.sqnr is not None and made.report.sqnr > decibels
    found = torch.as_tensor(made.run(*inputs))
    assert (found[0, 2] - inputs[0][0, 2]).abs().max() < 0.1, "attention adds nothing to a row that sees nothing"
    assert "softmax" in [v.operator for m in made.report.methods.values() for v in m.delegated]


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
