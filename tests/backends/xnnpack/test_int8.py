"""Rows that take integers, as quantized graphs: what stock and we compute is the same, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import Tensor, nn

from edgewright.backends.table import STATIC
from edgewright.backends.xnnpack.ops import BACKEND
from tests.backends.float_cases import CASES, Case
from tests.backends.lowered import Lowered

ops = torch.ops.quantized_decomposed
PRODUCTS = ("linear", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")  # their weights need scales too
SCALED = ("add", "sub", "rsub", "mul", "mean", "adaptive_avg_pool2d")  # results have scales of their own
EXPLICIT = {"quantize", "dequantize"}


def taken_as_integers(case: Case) -> bool:
    row = BACKEND.rows[case.op]
    return STATIC in row.precisions and case.op not in PRODUCTS and () not in case.shapes


def through(x: Tensor, scale: float, zero: int) -> Tensor:
    limits = (scale, zero, -128, 127, torch.int8)
    return ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *limits), *limits)


class Quantized(nn.Module):
    """A module whose inputs and outputs are integers."""

    def __init__(self, module: nn.Module, *, scaled: bool) -> None:
        super().__init__()
        self.module = module
        self.scaled = scaled

    def forward(self, *inputs: Tensor) -> Any:
        given = [through(x, 0.04 + 0.01 * i * self.scaled, 3 - 5 * i * self.scaled) for i, x in enumerate(inputs)]
        result = self.module(*given)
        scale, zero = (0.08, -7) if self.scaled else (0.04, 3)
        listed = result if isinstance(result, list | tuple) else [result]
        return [through(r, scale, zero) for r in listed]


def cases() -> list[Any]:
    found = [(i, c) for i, c in enumerate(CASES) if taken_as_integers(c)]
    return [pytest.param(c, id=f"{c.op}-{i}") for i, c in found]


@pytest.mark.sample(16)
@pytest.mark.parametrize("case", cases())
def test_integers_are_stocks(case: Case) -> None:
    inputs = case.inputs()
    lowered = Lowered(Quantized(case.module(), scaled=case.op in SCALED), inputs, case.dynamic)
    assert lowered.whole or "operands must all be quantized" in str(lowered.report), str(lowered.report)
    wanted, ours, theirs = lowered.eager(inputs), lowered.ours(inputs), lowered.stocks(inputs)
    for want, our, their in zip(wanted, ours, theirs, strict=True):
        np.testing.assert_array_equal(our, their)
        assert np.abs(our - want).max() <= 0.0801  # one step of the coarsest scale


def quantized_product(scale: float, out: float) -> Lowered:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stored = torch.randint(-127, 128, (5, 7), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
            self.register_buffer("weight", stored)

        def forward(self, x: Tensor) -> Tensor:
            weight = ops.dequantize_per_tensor(self.weight, scale, 0, -127, 127, torch.int8)
            return through(torch.nn.functional.linear(through(x, scale, 0), weight), out, 0)

    return Lowered(Product(), [torch.randn(3, 7)])


class Sum(nn.Module):
    """Two tensors of given scales."""

    def __init__(self, function: Any, first: float, second: float, out: float) -> None:
        super().__init__()
        self.function = function
        self.scales = (first, second, out)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        first, second, out = self.scales
        return through(self.function(through(x, first, 0), through(y, second, 0)), out, 0)


@pytest.mark.parametrize(
    ("function", "scales"),
    [(torch.add, (30.0, 0.1, 0.1)), (torch.add, (0.1, 0.00001, 0.1)), (torch.mul, (20.0, 20.0, 0.1)),
     (torch.sub, (0.001, 0.001, 10.0))],
)  # fmt: skip
def test_scales_too_far_apart_are_computed_as_real_numbers(function: Any, scales: tuple[float, float, float]) -> None:
    inputs = [torch.randn(4, 5), torch.randn(4, 5)]
    lowered = Lowered(Sum(function, *scales), inputs)
    assert "scales" in str(lowered.report)
    assert function.__name__ not in lowered.taken
    lowered.check(inputs, 0.01)


def test_products_whose_scales_are_too_far_apart_are_refused() -> None:
    assert "linear" in quantized_product(0.1, 0.1).taken
    assert "scales" in quantized_product(10.0, 0.01).refusal("linear")
