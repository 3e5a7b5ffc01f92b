"""A vision transformer (ViT-B/16), with its attention written out. Weights go by torchvision's names."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        q, k, v = (p.reshape(batch, length, self.heads, width // self.heads).permute(0, 2, 1, 3) for p in parts)
        scores = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        return self.out_proj((scores @ v).permute(0, 2, 1, 3).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.ln_1, self.self_attention = nn.LayerNorm(width, 1e-6), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, 1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Dropout(0.0), nn.Linear(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, length: int, depth: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, length, width) * 0.02)
        named = OrderedDict((f"encoder_layer_{i}", Layer(width, heads, inner)) for i in range(depth))
        self.layers, self.ln = nn.Sequential(named), nn.LayerNorm(width, 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    def __init__(
        self, image: int = 224, patch: int = 16, depth: int = 12, width: int = 768, heads: int = 12, classes: int = 1000
    ) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = Encoder((image // patch) ** 2 + 1, depth, width, heads, 4 * width)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, classes)))

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), pixels], 1)
        return self.heads(self.encoder(tokens)[:, 0])
