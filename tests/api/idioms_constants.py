"""Idioms: what is computed of weights and constants alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.api.idioms import draws, idiom

_ALL = ("xnnpack/float", "xnnpack/int8", "xnnpack/dynamic", "ethos-u85-256/int8")


@idiom(draws((1, 4, 8)), *_ALL)
class NormOfParameter(nn.Module):
    """DETR's queries."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(4, 8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.queries)


@idiom(draws((2, 4, 8)), *_ALL)
class GroupNormOfParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(1, 4, 8))
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.norm(self.tokens)


@idiom(draws((2, 4, 49, 49)), *_ALL)
class MlpOfCoordinates(nn.Module):
    """Swin V2's relative position bias: the hidden layer is larger than the table and the result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1, 13, 13, 2))
        self.register_buffer("index", torch.randint(0, 169, (49, 49)))
        self.mlp = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 4, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        bias = self.mlp(self.table).view(-1, 4)[self.index.view(-1)].view(49, 49, -1).permute(2, 0, 1).contiguous()
        return (x + 16 * torch.sigmoid(bias).unsqueeze(0)).softmax(-1)


@idiom(draws((2, 4, 32)), "xnnpack/float", "xnnpack/dynamic")
class MlpOfLargeTable(nn.Module):
    """Its result is larger than the table and the layers: it is computed when the program runs, on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(1100, 2))
        self.mlp = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 32, bias=False))
        self.layer = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.mlp(self.table).T


@idiom(draws((1, 4, 8)), "ethos-u85-256/int8")
class OnePlusWeight(nn.Module):
    """Gemma's norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


@idiom(lambda: (torch.rand(1, 4, 8),), "ethos-u85-256/int8")
class ExpOfWeight(nn.Module):
    """Mamba's decay."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x * -torch.exp(self.log.float()))


@idiom(draws((1, 4, 8)), "ethos-u85-256/int8", "ethos-u55-128/int8", "imxrt700/int8")
class ScaleFromTensor(nn.Module):
    """DeBERTa's scores: a number that is a tensor without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        scale = torch.sqrt(torch.tensor(query.size(-1), dtype=torch.float) * 3)
        return x @ (query / scale).transpose(-1, -2)


@idiom(draws((1, 4, 8)), "xnnpack/float", "xnnpack/int8")
class ReturnedConstant(nn.Module):
    """What depends on no input is an output, too."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(4, 8))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.norm(self.queries)
        return x + normed, normed


@idiom(draws((1, 39, 32)), "xnnpack/int8", "ethos-u85-256/int8")
class WeightNormedConvolution(nn.Module):
    """wav2vec 2.0's position embedding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Conv1d(32, 32, 16, padding=8, groups=4)
        self.layer = nn.utils.parametrizations.weight_norm(layer, name="weight", dim=2)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.gelu(self.layer(x.transpose(1, 2))[:, :, :-1]).transpose(1, 2)


@idiom(draws((1, 4, 6, 6)), "xnnpack/float", "e9955/int8")
class RelativeBuckets(nn.Module):
    """T5's position bias: the logarithm of a distance of 0 is infinite, and is not chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        distance = torch.arange(6)[None, :] - torch.arange(6)[:, None]
        side, distance = (distance > 0).to(torch.long) * 4, distance.abs()
        far = 2 + (torch.log(distance.float() / 2) / math.log(8) * 2).to(torch.long)
        far = torch.min(far, torch.full_like(far, 3))
        return x + self.bias(side + torch.where(distance < 2, distance, far)).permute(2, 0, 1).unsqueeze(0)


@idiom(draws((1, 2, 5, 8)), "xnnpack/float", "ethos-u85-256/int8")
class RotaryAngles(nn.Module):
    """Angles of positions that are known when the model is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8)))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(5).float(), self.inverse).repeat(1, 2)
        turned = torch.cat((-x[..., 4:], x[..., :4]), -1)
        return x * angles.cos() + turned * angles.sin()
