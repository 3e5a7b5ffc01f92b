"""Layers of several operators as engineers write them, each after a defect that a model written by hand had shown."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tests.compose.models import MOST_MACS, layer
from tests.compose.spec import Step, need

_SHARE = 1 / 6  # of the models, which end with an idiom
_FILLS = (-math.inf, -1e9, -1000.0, -100.0)
_MASKS = ("where", "masked_fill", "added", "cast")


def draw_idiom(seed: int, values: Sequence[Tensor]) -> Step | None:
    """An idiom for the end of some models. Choices of its own: what comes before is what a seed gave without them."""
    r = random.Random(f"idiom {seed}")
    op = r.choice(("wide_cat", "chained_writes", "filled_constant", "sliced_product", "padding_attention"))
    rank = {"sliced_product": 3, "padding_attention": 3}.get(op, 2)
    fitting = [i for i, v in enumerate(values) if v.dim() >= rank and v.shape[-1] >= 2 and v.shape[-2] <= 64]
    if r.random() >= _SHARE or not fitting:
        return None
    step: Step = {"op": op, "in": [fitting[-1]], "seed": r.randrange(1 << 16)}
    if op == "padding_attention":
        step |= {"fill": str(r.choice(_FILLS)), "how": r.choice(_MASKS), "sharpness": r.choice((0.25, 1.0, 4.0))}
    return step


class WideCat(nn.Module):
    """A part of a value beside one that is a hundred times as wide; the value has another reader."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer, self.part = nn.Linear(size, size), size // 2

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        wide = torch.cat([y[..., : self.part], x * 100.0], -1)
        return y * (1.0 + torch.sigmoid(wide.mean(-1, keepdim=True)))


class ChainedWrites(nn.Module):
    """A buffer with several writes in place, one after the other, and reads between them."""

    held: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        self.held[..., :-1] = self.held[..., 1:].clone()
        self.held[..., -1:] = x[..., :1]
        read = self.held * 0.5
        self.held.mul_(0.9).add_(x * 0.1)
        return self.held + read


class FilledConstant(nn.Module):
    """A constant filled by a mask that is known when the model runs."""

    keep: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("keep", torch.arange(size) % 3 > 0)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x.abs() >= 0) & self.keep
        return torch.full_like(x, 2.5).masked_fill(mask, -0.5) * x


class SlicedProduct(nn.Module):
    """A matrix product whose left operand is a slice."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, size - 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x[..., 1:] @ self.layer(x).transpose(-1, -2) / x.shape[-1]
        return result


class PaddingAttention(nn.Module):
    """Attention with a padding mask that is known when the model runs."""

    keep: Tensor

    def __init__(self, length: int, size: int, fill: float, how: str, sharpness: float) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(size, size), nn.Linear(size, size)
        self.register_buffer("keep", torch.arange(length) < max(1, 2 * length // 3))
        self.fill, self.how, self.sharpness = fill, how, sharpness / math.sqrt(size)

    def forward(self, x: Tensor) -> Tensor:
        keep = ((x.abs().amax(-1) >= 0) & self.keep).unsqueeze(-2)
        scores = self.query(x) @ self.key(x).transpose(-1, -2) * self.sharpness
        if self.how == "where":
            scores = torch.where(keep, scores, self.fill)
        elif self.how == "masked_fill":
            scores = scores.masked_fill(~keep, self.fill)
        elif self.how == "added":
            scores = scores + torch.zeros_like(keep, dtype=x.dtype).masked_fill(~keep, self.fill)
        else:
            scores = scores + (1.0 - keep.to(x.dtype)) * max(self.fill, -1e9)
        result: Tensor = scores.softmax(-1) @ x
        return result


def _last(given: list[Tensor], rank: int = 2) -> int:
    (x,) = given
    need(x.dim() >= rank and x.shape[-1] >= 2 and x.numel() * max(x.shape[-2:]) <= MOST_MACS)
    return int(x.shape[-1])


@layer("wide_cat")
def _wide_cat(s: Step, given: list[Tensor]) -> nn.Module:
    return WideCat(_last(given))


@layer("chained_writes")
def _chained_writes(s: Step, given: list[Tensor]) -> nn.Module:
    _last(given)
    return ChainedWrites(given[0].shape)


@layer("filled_constant")
def _filled_constant(s: Step, given: list[Tensor]) -> nn.Module:
    return FilledConstant(_last(given))


@layer("sliced_product")
def _sliced_product(s: Step, given: list[Tensor]) -> nn.Module:
    return SlicedProduct(_last(given, 3))


@layer("padding_attention")
def _padding_attention(s: Step, given: list[Tensor]) -> nn.Module:
    size = _last(given, 3)
    return PaddingAttention(int(given[0].shape[-2]), size, float(s["fill"]), s["how"], s["sharpness"])
