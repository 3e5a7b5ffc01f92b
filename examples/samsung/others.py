"""A vision transformer, a network that enlarges images, and one that listens."""

from __future__ import annotations

import torch
from layers import Plus
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.qkv(x).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = (parts.select(0, i) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        made: Tensor = self.out(seen)
        return made


class ViT(nn.Module):
    """ViT-B/16, for images of 224 by 224 pixels."""

    def __init__(self, width: int = 768, heads: int = 12, depth: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        blocks = []
        for _ in range(depth):
            attention = nn.Sequential(nn.LayerNorm(width, 1e-6), _Attention(width, heads))
            layers = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            blocks += [Plus(attention), Plus(nn.Sequential(nn.LayerNorm(width, 1e-6), *layers))]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width, 1e-6))
        self.head = nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places
        made: Tensor = self.head(self.blocks(y)[:, 0])
        return made


class Edsr(nn.Module):
    """EDSR with 16 blocks of 64 channels: an image of twice the size."""

    def __init__(self, blocks: int = 16, width: int = 64) -> None:
        super().__init__()

        def conv(inside: int, out: int) -> nn.Conv2d:
            return nn.Conv2d(inside, out, 3, padding=1)

        self.head = conv(3, width)
        body = [Plus(nn.Sequential(conv(width, width), nn.ReLU(), conv(width, width))) for _ in range(blocks)]
        self.body = Plus(nn.Sequential(*body, conv(width, width)))
        self.tail = nn.Sequential(conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.tail(self.body(self.head(x)))
        return made


class Wav2Letter(nn.Module):
    """Letters from a wave, step by step."""

    def __init__(self, letters: int = 4096) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv1d(1, 250, 250, 160, 45),
            nn.ReLU(),
            nn.Conv1d(250, 250, 48, 2, 23),
            nn.ReLU(),
        ]
        for _ in range(7):
            layers += [nn.Conv1d(250, 250, 7, 1, 3), nn.ReLU()]
        layers += [nn.Conv1d(250, 2000, 32, 1, 16), nn.ReLU(), nn.Conv1d(2000, 2000, 1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv1d(2000, letters, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.layers(x), dim=1)
