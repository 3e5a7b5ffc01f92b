"""Attention in the front end: scores that are masked as a whole give nothing, and cost nothing where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from edgewright.frontend.decompose.softmax import _MAX_MASK
from edgewright.frontend.prepare import prepare
from edgewright.lowering.kernel_resolution import kernel_set

ROWS, WIDTH = 6, 4
EARLIER = torch.ones(ROWS, ROWS, dtype=torch.bool).tril()
DEAD = EARLIER & (torch.arange(ROWS) != 2)[:, None]  # the third row sees nothing
X = torch.randn(2, 3, ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
CHOICES = {"where", "any", "eq", "ne", "logical_not"}


def real(mask: Tensor) -> Tensor:
    return torch.where(mask, 0.0, -math.inf)


class Attention(nn.Module):
    """Attention with a mask of its own, or one that it is given."""

    def __init__(self, mask: Tensor | None = None, causal: bool = False) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.causal = causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = self.mask if mask is None else mask
        return F.scaled_dot_product_attention(x, x * 0.5, x + 1, attn_mask=mask, is_causal=self.causal)


def lowered(model: nn.Module, *inputs: Tensor, decomposed: bool) -> torch.export.ExportedProgram:
    exported = torch.export.export(model, inputs)
    return prepare(exported.run_decompositions() if decomposed else exported, kernel_set("wheel").supports)


def called(program: torch.export.ExportedProgram) -> set[str]:
    return {str(n.target).split(".")[1] for n in program.graph.nodes if n.op == "call_function"}


both = pytest.mark.parametrize("decomposed", [False, True])


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize("model", [
    lambda: Attention(), lambda: Attention(causal=True), lambda: Attention(EARLIER), lambda: Attention(real(EARLIER)),
    lambda: Attention(X[0, 0, :, :1].expand(ROWS, ROWS)),
])  # fmt: skip
def test_where_every_row_sees_something_it_is_a_softmax(model: Callable[[], nn.Module], decomposed: bool) -> None:
    program = lowered(model().eval(), X, decomposed=decomposed)
    assert "_softmax" in called(program)
    assert not called(program) & {*CHOICES, "full", "tril", "arange", "ones"}
    torch.testing.assert_close(program.module()(X), model()(X))


@pytest.mark.sample(2)
@both
@pytest.mark.parametrize("mask", [DEAD, real(DEAD)])
def test_rows_that_are_masked_are_known_of_constants(mask: Tensor, decomposed: bool) -> None:
    program, model = lowered(Attention(mask).eval(), X, decomposed=decomposed), Attention(mask)
    assert not called(program) & CHOICES
    found = program.module()(X)
    torch.testing.assert_close(found, model(X))
    assert not found[:, :, 2].any()


@pytest.mark.sample(3)
@both
@pytest.mark.parametrize("mask", [DEAD, real(DEAD), real(DEAD).expand(2, 3, ROWS, ROWS), real(DEAD)[:, :1]])
def test_rows_are_asked_of_masks_that_are_given(mask: Tensor, decomposed: bool) -> None:
    program = lowered(Attention().eval(), X, mask, decomposed=decomposed)
    softmax = next(n for n in program.graph.nodes if n.target is torch.ops.aten._softmax.default)
    (factor,) = softmax.users  # nothing else is done to what is as large as all scores
    assert factor.target is torch.ops.aten.mul.Tensor
    module = program.module()
    for each in (mask, torch.ones_like(mask) if mask.dtype == torch.bool else torch.zeros_like(mask)):
        torch.testing.assert_close(module(X, each), Attention()(X, each))


def test_numbers_that_are_none_stay_none() -> None:
    scores = torch.tensor([[math.nan, 0.0], [-math.inf, -math.inf], [-math.inf, 1.0]])

    class Softmax(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten._safe_softmax(x, 1)

    for decomposed in (False, True):
        found = lowered(Softmax(), scores, decomposed=decomposed).module()(scores)
        torch.testing.assert_close(found, Softmax()(scores), equal_nan=True)


def test_a_mask_that_is_written_is_no_constant() -> None:
    class Growing(Attention):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            self.mask[0, 0] = -math.inf
            return super().forward(x)

    first = torch.zeros(ROWS, ROWS)
    first[0, 1:] = -math.inf
    program = lowered(Growing(first.clone()).eval(), X, decomposed=False)
    assert "any" in called(program)
    torch.testing.assert_close(program.module()(X), Growing(first.clone())(X))


def test_large_masks_are_computed_when_they_are_needed() -> None:
    rows = math.isqrt(_MAX_MASK) + 1
    x = torch.randn(1, 1, rows, 2)
    program = lowered(Attention(causal=True).eval(), x, decomposed=False)
    assert "tril" in called(program) and not called(program) & {"any", "ne"}


def test_a_choice_of_another_kind_stays_one() -> None:
    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            shares = torch.softmax(x, -1)
            none = torch.zeros_like(shares)
            some = (x == -math.inf).any(-1, keepdim=True)
            other = (x == -math.inf).all(-2, keepdim=True)
            seen = torch.logical_not((x == -math.inf).all(-1, keepdim=True))
            chosen = torch.where(some, none, shares) + torch.where(other, none, shares)
            return chosen + torch.where(some, shares, none) + torch.where(seen, none, shares)

    scores = real(EARLIER)
    for decomposed in (False, True):
        program = lowered(Chosen(), scores, decomposed=decomposed)
        assert [str(n.target) for n in program.graph.nodes].count("aten.where.self") == 4
        torch.testing.assert_close(program.module()(scores), Chosen()(scores), equal_nan=True)
