"""What a model computes without its inputs is constant to every backend, and does not run on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import edgewright as ew
from edgewright.backends.table import CONTROL_FLOW
from tests.support.stock import stock

EARLIER = torch.ones(8, 8, dtype=torch.bool).tril()
X = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
TARGETS = {"xnnpack": None, "ethos-u55-128": None, "sm8650": True, "e9955": True, "imxrt700": True}
Function = Callable[["Between", Tensor], Tensor]


class Between(nn.Module):
    """A function between two convolutions."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.bias, self.linear, self.table = nn.Parameter(torch.randn(16, 8)), nn.Linear(8, 8), nn.Embedding(32, 8)
        self.register_buffer("earlier", EARLIER.float()[None, None])
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self, self.first(x)))


def _mask_in_place(m: Between, x: Tensor) -> Tensor:
    mask = torch.zeros(8, 8)
    mask[:4, 4:] = -math.inf
    return (x + mask).softmax(-1)


CASES: dict[str, Function] = {
    "full": lambda m, x: x + torch.full((1, 4, 1, 1), 0.5),
    "full_like": lambda m, x: x + torch.full_like(x, 0.5),
    "zeros": lambda m, x: torch.cat([x[:, :2], torch.zeros(1, 2, 8, 8)], 1),
    "zeros_like": lambda m, x: torch.maximum(x, torch.zeros_like(x)),
    "new_zeros": lambda m, x: torch.cat([x[:, :2], x.new_zeros(1, 2, 8, 8)], 1),
    "ones": lambda m, x: x * torch.ones(8, 8),
    "arange": lambda m, x: x + torch.arange(8) / 8.0,
    "eye": lambda m, x: x @ torch.eye(8),
    "fill": lambda m, x: x + torch.empty(8, 8).fill_(0.5),
    "scalar_tensor": lambda m, x: x * torch.scalar_tensor(0.25),
    "meshgrid": lambda m, x: x + torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.arange(8.0) / 8,
                                                            indexing="ij")).repeat(2, 1, 1),
    "bias": lambda m, x: x + m.bias[:8],
    "weight": lambda m, x: F.linear(x, m.linear.weight[2:], m.linear.bias[2:]),
    "positions": lambda m, x: x + m.table(torch.arange(8)),
    "mask": lambda m, x: x.masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), -math.inf).softmax(-1),
    "buffer": lambda m, x: x.masked_fill(m.earlier[:, :, :8, :8] == 0, -math.inf).softmax(-1),
    "where": lambda m, x: torch.where(m.earlier > 0, x, torch.finfo(torch.float32).min).softmax(-1),
    "in place": _mask_in_place,
}  # fmt: skip


def compiled(module: nn.Module, target: str, quantize: str | None) -> Any:
    data = [(X,)] if quantize else None
    return ew.compile(module, (X,), target, quantize=quantize, calibration=data, quiet=True, simulate=TARGETS[target])


def left_on_cpu(result: Any) -> list[str]:
    """The operators that are not delegated, apart from conversions of inputs and outputs."""
    report = result.program.partition_reports["forward"]
    return [v.operator for v in report.rejected if v.operator not in ("quantize", "dequantize")]


@pytest.mark.sample(24)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("quantize", ["int8", None])
def test_constants_are_part_of_one_delegate(name: str, target: str, quantize: str | None) -> None:
    if quantize is None and target in ("ethos-u55-128", "imxrt700"):
        pytest.skip("runs integers only")
    module = Between(CASES[name]).eval()
    result = compiled(module, target, quantize)
    report = result.program.partition_reports["forward"]
    assert left_on_cpu(result) == []
    assert report.groups == 1
    actual, wanted = torch.as_tensor(result.run(X)), module(X)
    noise = (actual - wanted).pow(2).mean().sqrt() / wanted.pow(2).mean().sqrt()
    assert noise < (0.05 if quantize else 2e-6 if target == "xnnpack" else 2e-3)


@pytest.mark.parametrize("name", ["full", "arange", "mask", "where"])
def test_the_stock_runtime_reads_them(name: str) -> None:
    module = Between(CASES[name]).eval()
    for quantize in (None, "int8"):
        result = compiled(module, "xnnpack", quantize)
        actual, wanted = stock().run(result.buffer, "forward", [X.numpy()])[0], torch.as_tensor(result.run(X))
        step = 0 if quantize is None else wanted.abs().max() / 64
        torch.testing.assert_close(torch.as_tensor(actual), wanted, rtol=1e-5, atol=1e-5 + float(step))


@pytest.mark.parametrize("fill", [-math.inf, -1e4])
def test_a_row_that_is_masked_entirely_is_not_a_sum(fill: float) -> None:
    """Nor is one of a number that a large score outweighs."""
    mask = EARLIER.clone()
    mask[2] = fill > -math.inf
    module = Between(lambda m, x: (x * 1e4).masked_fill(~mask, fill).softmax(-1).nan_to_num()).eval()
    result = compiled(module, "xnnpack", None)
    assert "masked_fill" in left_on_cpu(result)
    torch.testing.assert_close(torch.as_tensor(result.run(X)), module(X), rtol=1e-4, atol=1e-4)


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (self.conv(x),))
        loop = torch._higher_order_ops.while_loop
        return self.conv(loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 0.5), (torch.tensor(0), y))[1])


@pytest.mark.parametrize("target", ["ethos-u55-128", "xnnpack"])
def test_control_flow_stays_on_the_cpu_for_a_reason(target: str) -> None:
    module = Loop().eval()
    result = compiled(module, target, "int8")
    report = result.program.partition_reports["forward"]
    reasons = {v.operator: list(v.rejections) for v in report.rejected}
    assert reasons["cond"] == reasons["while_loop"] == [CONTROL_FLOW]
    actual, wanted = torch.as_tensor(result.run(X)), module(X)
    assert (actual - wanted).abs().max() < 0.05 * wanted.abs().max()
