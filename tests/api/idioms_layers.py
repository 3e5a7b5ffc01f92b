"""Idioms: layers and how they share what they read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.api.idioms import draws, idiom

_LENGTH = torch.export.Dim("length", min=2, max=16)
_ALL = ("xnnpack/float", "xnnpack/int8", "xnnpack/dynamic")


@idiom(draws((1, 4, 32)), "xnnpack/dynamic")
class LayersInTwoGroups(nn.Module):
    """Two layers of one tensor, with an operator between them that no delegate takes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.skip = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x)
        gated = torch.relu(self.up(x) * torch.cumsum(self.gate(x), 1))
        return gated + self.skip(x)


@idiom(draws((1, 3, 8, 8)), "xnnpack/dynamic")
class ConvolutionsInTwoGroups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.skip = (nn.Conv2d(3, 8, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x)
        gated = torch.relu(self.up(x) * torch.cumsum(self.gate(x), 1))
        return gated + self.skip(x)


@idiom(draws((1, 6, 16)), *_ALL, "imxrt700/int8", shapes=({1: _LENGTH},), margin=8.0)
class NormOfLastToken(nn.Module):
    """What generators do before the head: strides of the last token depend on the length, its shape does not.

    The margin: on sm8550 the 16 results are at most two steps from the fake-quantized ones, one for the norm and one
    for the layer, which are 6.6 decibels of so few numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x[:, -1:]))


@idiom(draws((1, 400)), "ethos-u85-256/int8", "ethos-u55-128/int8")
class SpeechFeatures(nn.Module):
    """wav2vec 2.0's feature encoder and projection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, 16, 10, 5, bias=False), nn.Conv1d(16, 16, 3, 2, bias=False)
        self.group_norm, self.norm = nn.GroupNorm(16, 16), nn.LayerNorm(16)
        self.projection, self.position = nn.Linear(16, 32), nn.Conv1d(32, 32, 3, padding=1, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.group_norm(self.first(x[:, None])))
        x = self.projection(self.norm(nn.functional.gelu(self.second(x)).transpose(1, 2)))
        return x + torch.cumsum(self.position(x.transpose(1, 2)), 1).transpose(1, 2)


@idiom(draws((1, 12, 16)), "ethos-u85-256/int8", "ethos-u55-128/int8")
class BothOrders(nn.Module):
    """A result as it is and transposed, both read outside of the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(x)
        return x, x.transpose(1, 2)


_INEXACT = {"sm8550/int8": "integers that the NPU casts to real numbers are not exact: the last expert is out of range"}


@idiom(draws((6, 16)), "xnnpack/float", "ethos-u55-128/int8", wrong=_INEXACT)
class ExpertCounts(nn.Module):
    """Mixtral's router: how many tokens each expert gets. The scores are far apart, so that all round to one order."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scores", torch.stack([torch.randperm(8) for _ in range(6)]).float() * 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        experts = (self.scores + x[:, :8]).topk(2, -1).indices
        return torch.histc(experts.float(), bins=8, min=0, max=7), torch.histc(x * 0 + self.scores[:, :1], bins=5)


@idiom(lambda: (torch.randn(6, 16) * 4,), "xnnpack/float", "e9955/int8")
class RouterScatter(nn.Module):
    """The best experts' scores among infinite ones, and their shares. The scores are too far apart to become equal."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scores", torch.stack([torch.randperm(4) for _ in range(6)]).float())

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores + x[:, :4] / 100
        best, places = scores.topk(2, -1)
        return torch.full_like(scores, float("-inf")).scatter(1, places, best).softmax(-1)


@dataclass
class Result:
    """Registered without a name to store it under."""

    hidden: Tensor
    pair: tuple[Tensor, Tensor]


pytree.register_dataclass(Result)


@idiom(draws((2, 6)), *_ALL)
class DataclassResult(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Result:
        x = self.layer(x)
        return Result(x, (x + 1, x * 2))
