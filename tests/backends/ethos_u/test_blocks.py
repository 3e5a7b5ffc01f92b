"""Parts of networks that are made of functions: a transformer's block, and what stock decomposes, in one delegate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewright.runtime import Runtime
from tests.backends.ethos_u.lowered import Lowered, Quantized, lower, quantize
from tests.backends.ethos_u.test_models import assert_same_as_reference

OUTSIDE = ["quantize", "dequantize"]


class Block(nn.Module):
    """Attention by heads, and two layers: each with a norm before it."""

    def __init__(self, size: int = 32, heads: int = 4, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.three, self.back = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        each = size // self.heads
        parts = self.three(self.before(x)).chunk(3, -1)
        q, k, v = (p.reshape(batch, length, self.heads, each).transpose(1, 2) for p in parts)
        if self.fused:
            made = functional.scaled_dot_product_attention(q, k, v)
        else:
            made = torch.softmax(q @ k.transpose(-1, -2) / each**0.5, -1) @ v
        x = x + self.back(made.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(functional.gelu(self.up(self.between(x))))


def likeness(found: Tensor, wanted: Tensor) -> float:
    """Signal over noise, in decibels."""
    return float(10 * torch.log10((wanted**2).sum() / ((found - wanted) ** 2).sum().clamp(min=1e-20)))


def ran(made: Lowered, quantized: Quantized) -> Tensor:
    (found,) = Runtime().load_program(made.program).load_method("forward").execute(quantized.inputs)
    return torch.as_tensor(np.asarray(found))


@pytest.mark.sample(1)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_a_block_is_one_delegate(target: str, fused: bool) -> None:
    torch.manual_seed(0)
    quantized = quantize((Block(fused=fused).eval(), (torch.randn(1, 16, 32),)), "a8w8", target)
    made = lower(quantized, target)
    assert [v.operator for v in made.report.rejected] == OUTSIDE
    assert_same_as_reference(made)
    with torch.no_grad():
        eager, rounded = quantized.model(*quantized.inputs), quantized.converted(*quantized.inputs)
    assert likeness(rounded, eager) > 33
    if target != "ethos-u85-256":
        assert likeness(ran(made, quantized), rounded) > 45


def test_wide_products_stay_outside_a_small_npu() -> None:
    torch.manual_seed(0)
    made = lower(quantize((Block().eval(), (torch.randn(1, 16, 32),)), "a16w8", "ethos-u55-128"), "ethos-u55-128")
    said = {v.operator: str(v) for v in made.report.rejected if v.operator not in OUTSIDE}
    assert "bmm" in said


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine similarity": lambda x: functional.cosine_similarity(x, x * 0.5 + 0.1, dim=1),
    "sum of a product": lambda x: torch.baddbmm(x[0], x[0], x[0]),
    "einsum": lambda x: torch.einsum("bchw,bcwv->bchv", x, x),
    "group norm": lambda x: functional.group_norm(x, 2),
    "instance norm": lambda x: functional.instance_norm(x),
    "variance and mean": lambda x: torch.var_mean(x, 1)[0] + torch.var_mean(x, 1)[1],
    "standard deviation": lambda x: x.std(1),
    "log softmax": lambda x: x.log_softmax(-1),
    "glu": lambda x: functional.glu(x, 1),
    "remainder": lambda x: x % 0.7,
    "quotient": lambda x: x / (x.abs() + 1),
    "of numbers": lambda x: (1 - x * 0.5 + 2) / 3,
    "bounds": lambda x: torch.clamp(x, x * 0.5, x * 2 + 1),
    "interpolated": lambda x: torch.add(x, x.relu(), alpha=-0.5),
    "several": lambda x: torch.cat([p.tanh() for p in x.unbind(1)], 1),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_one_delegate(name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return FUNCTIONS[name](self.first(x))

    torch.manual_seed(0)
    quantized = quantize((Model().eval(), (torch.randn(1, 4, 6, 6),)), "a8w8", "ethos-u55-128")
    made = lower(quantized, "ethos-u55-128")
    assert len(made.groups) == 1
    assert {v.operator for v in made.report.rejected} <= {*OUTSIDE, "scalar_tensor", "aten.scalar_tensor.default"}
    with torch.no_grad():
        assert likeness(ran(made, quantized), quantized.converted(*quantized.inputs)) > 40
