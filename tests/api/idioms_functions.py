"""Idioms that need no weights of their own, or one: positions, routing, windows, einsums, masks, scans, results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.api.idioms import IDIOMS, Idiom, draws


class Function(nn.Module):
    """A function of a parameter, a layer and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.randn(8)), nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)).bool().logical_not())
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self, *inputs)


def _rotary_interleaved(m: Any, x: Tensor) -> Tensor:
    angles = torch.outer(torch.arange(6).float(), 1.0 / (100 ** (torch.arange(4).float() / 4)))
    even, odd = x[..., ::2], x[..., 1::2]
    pairs = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(pairs, -1).flatten(-2)


def _windows(m: Any, x: Tensor) -> Tensor:
    """Swin: shifted windows, a layer on each, and back."""
    shifted = torch.roll(x, (-2, -2), (1, 2)).view(2, 2, 4, 2, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 8)
    back = m.layer(shifted).view(2, 2, 2, 4, 4, 8).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 8, 8)
    return torch.roll(back, (2, 2), (1, 2))


def _patches(m: Any, x: Tensor) -> Tensor:
    parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
    return F.layer_norm(torch.cat(parts, -1), (32,))


def _einsums(m: Any, x: Tensor) -> Any:
    return (torch.einsum("bnc,dc->bnd", x, m.layer.weight), torch.einsum("bnc,bmc->bnm", x, x),
            torch.einsum("bnc,bnc->b", x, x), torch.einsum("bnc,c->bn", x, m.weight))  # fmt: skip


def _masked(m: Any, x: Tensor) -> Any:
    scores = m.layer(x) @ x.transpose(1, 2)
    low = torch.finfo(scores.dtype).min
    return [scores.masked_fill(m.mask, value).softmax(-1) for value in (-1e4, float("-inf"), low)]


def _mean_pool(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    spread = mask.unsqueeze(-1).expand(x.size()).float()
    return F.normalize((x * spread).sum(1) / torch.clamp(spread.sum(1), min=1e-9), p=2, dim=1)


def _bert_mask(m: Any, x: Tensor, mask: Tensor) -> Tensor:
    hidden = (1.0 - mask[:, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
    return (m.layer(x) @ x.transpose(1, 2) / math.sqrt(8) + hidden).softmax(-1) @ x


def _index_add(m: Any, x: Tensor, places: Tensor) -> Any:
    spread = places[None, :, None].expand(2, 6, 8)
    return torch.zeros(6, 8).index_add(0, places, m.layer(x)[0]), torch.zeros(2, 6, 8).scatter_add(1, spread, x)


def _alibi(m: Any, x: Tensor) -> Tensor:
    slopes, steps = torch.tensor([0.25, 0.0625]), torch.arange(6)
    return ((x @ x.transpose(1, 2)).unsqueeze(1) + slopes[:, None, None] * (steps[None] - steps[:, None])).softmax(-1)


def _position_table(m: Any, x: Tensor) -> Tensor:
    table = torch.linspace(-1, 1, 128).reshape(1, 8, 4, 4) * m.weight[None, :, None, None]
    return x + F.interpolate(table, size=(8, 8), mode="bilinear", align_corners=False).permute(0, 2, 3, 1)


ROWS = draws((2, 6, 8))
MASKED = lambda: (torch.randn(2, 6, 8), torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]))  # noqa: E731
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "rotary_interleaved": (_rotary_interleaved, ROWS),
    "windows": (_windows, draws((2, 8, 8, 8))),
    "patches": (_patches, draws((1, 8, 8, 8))),
    "einsums": (_einsums, ROWS),
    "masked": (_masked, ROWS),
    "mean_pool": (_mean_pool, MASKED),
    "bert_mask": (_bert_mask, MASKED),
    "index_add": (_index_add, lambda: (torch.randn(2, 6, 8), torch.tensor([0, 2, 2, 5, 1, 0]))),
    "alibi": (_alibi, ROWS),
    "position_table": (_position_table, draws((1, 8, 8, 8))),
    "cumsum": (lambda m, x: (x.cumsum(1), torch.exp(x.cumsum(-1) / 8)), ROWS),
    "glu": (lambda m, x: F.glu(m.layer(x), -1), ROWS),
    "swiglu": (lambda m, x: F.silu(m.layer(x).chunk(2, -1)[0]) * m.layer(x).chunk(2, -1)[1], ROWS),
    "squared_relu": (lambda m, x: m.layer(x).relu().square(), ROWS),
    "layer_scale": (lambda m, x: x + m.weight * m.layer(x), ROWS),
    "temperature": (lambda m, x: F.normalize(x, dim=-1) @ x.transpose(1, 2) * m.weight[0].exp(), ROWS),
    "causal": (lambda m, x: F.scaled_dot_product_attention(x, m.layer(x), x, is_causal=True), ROWS),
    "views": (lambda m, x: (x.view(4, 24), x.transpose(1, 2), x[0], x[:, None]), ROWS),
    "inputs": (lambda m, x: (x, x + 1, x), ROWS),
    "constants": (lambda m, x: (m.weight, x * 2, torch.arange(3)), ROWS),
    "nothing": (lambda m, x: (x * 2, None, (None, x + 1)), ROWS),
    "mapping": (lambda m, x: {"z": m.layer(x), "a": x.relu(), "list": [x + 1]}, ROWS),
    "moments": (lambda m, x: (x.std(-1), x.var(1, unbiased=False), x.norm(p=2, dim=-1)), ROWS),
}
for _name, (_function, _inputs) in FUNCTIONS.items():
    IDIOMS[_name] = Idiom(lambda function=_function: Function(function), _inputs, default=())  # type: ignore[misc]
