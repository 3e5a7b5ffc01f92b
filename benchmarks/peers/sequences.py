"""Networks of sequences that are measured: an encoder, a decoder with a key-value cache, a stack of wide layers, and
convolutional and recurrent networks of sound."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        shares = torch.softmax(query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, -1)
        return self.out((shares @ value).transpose(1, 2).reshape(x.shape))


class EncoderLayer(nn.Module):
    """As BERT has it: norms after the sums."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Sequential):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__(*(EncoderLayer(width, heads) for _ in range(layers)))


class DecoderLayer(nn.Module):
    """As Llama has it: rotated queries and keys, RMS norms, a gated layer; keys and values of all tokens are kept."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, length, width // heads))

    def forward(self, x: Tensor, at: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, count, width = x.shape
        given = self.first(x)

        def split(made: Tensor) -> Tensor:
            return made.view(batch, count, self.heads, -1).transpose(1, 2)

        def rotated(made: Tensor) -> Tensor:
            a, b = made.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        query, key = (rotated(split(layer(given))) for layer in (self.query, self.key))
        self.keys[:, :, at], self.values[:, :, at] = key, split(self.value(given))
        match = query @ self.keys.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask
        x = x + self.out((torch.softmax(match, -1) @ self.values).transpose(1, 2).reshape(x.shape))
        given = self.second(x)
        return x + self.down(F.silu(self.gate(given)) * self.up(given))


class Decoder(nn.Module):
    """The next token's logits for a token and its place."""

    def __init__(self, layers: int = 8, width: int = 512, heads: int = 8, length: int = 256, words: int = 8192) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, length) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        each = width // heads
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, each, 2) / each)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, token: Tensor, at: Tensor) -> Tensor:
        x = self.embed(token)
        for layer in self.layers:
            x = layer(x, at, self.mask[at], self.cos[at], self.sin[at])
        return self.head(self.norm(x))


class Wide(nn.Sequential):
    """Linear layers that no cache holds, even at 4 bits."""

    def __init__(self, layers: int = 6, width: int = 4096) -> None:
        super().__init__(*(nn.Linear(width, width, bias=False) for _ in range(layers)))


class Voice(nn.Module):
    """Whether somebody speaks, as Silero's detector has it: 32 ms of sound at 16 kHz, and what was heard before.

    A spectrum by convolution, an encoder of four layers, a recurrent layer and a decision.
    """

    def __init__(self, window: int = 256, width: int = 128) -> None:
        super().__init__()
        bins = window // 2 + 1
        self.window = window
        self.spectrum = nn.Conv1d(1, 2 * bins, window, stride=window // 2, bias=False)
        sizes, strides = (bins, width, width // 2, width // 2, width), (1, 2, 2, 1)
        layers = zip(sizes, sizes[1:], strides, strict=False)
        self.encoder = nn.ModuleList(nn.Conv1d(a, b, 3, stride=stride, padding=1) for a, b, stride in layers)
        self.memory, self.head = nn.LSTM(width, width), nn.Linear(width, 1)

    def forward(self, sound: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        waves = self.spectrum(F.pad(sound[:, None], (self.window // 4, self.window // 4)))
        real, imaginary = waves.chunk(2, 1)
        x = torch.sqrt(real * real + imaginary * imaginary)
        for layer in self.encoder:
            x = torch.relu(layer(x))
        made, (hidden, cell) = self.memory(x.permute(2, 0, 1), (hidden, cell))
        return hidden, cell, torch.sigmoid(self.head(torch.relu(made[0])))


class TemporalBlock(nn.Module):
    """Two dilated causal convolutions and a residual connection (Bai et al., 2018)."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.padding = (2 * dilation, 0)
        self.first = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.second = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(F.pad(x, self.padding)))
        return F.relu(F.relu(self.second(F.pad(y, self.padding))) + self.skip(x))


class Tcn(nn.Module):
    def __init__(self, features: int = 40, width: int = 64, levels: int = 6, classes: int = 12) -> None:
        super().__init__()
        widths = zip([features, *[width] * levels], [width] * levels, strict=False)
        self.blocks = nn.Sequential(*(TemporalBlock(a, b, 1 << level) for level, (a, b) in enumerate(widths)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x)[:, :, -1])


class SeparationBlock(nn.Module):
    """A depthwise separable block of Conv-TasNet."""

    def __init__(self, width: int, hidden: int, dilation: int) -> None:
        super().__init__()
        depthwise = nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden)
        first = nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden)
        second = depthwise, nn.PReLU(), nn.GroupNorm(1, hidden)
        self.layers, self.out = nn.Sequential(*first, *second), nn.Conv1d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(self.layers(x))


class ConvTasNet(nn.Module):
    """Luo and Mesgarani, 2019, at a quarter of the published width: one second of two speakers at 8 kHz."""

    def __init__(self, filters: int = 128, width: int = 64, hidden: int = 128, speakers: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, stride=8, bias=False)
        self.norm, self.enter = nn.GroupNorm(1, filters), nn.Conv1d(filters, width, 1)
        self.blocks = nn.Sequential(*(SeparationBlock(width, hidden, 1 << (i % 8)) for i in range(16)))
        self.masks = nn.Conv1d(width, speakers * filters, 1)
        self.decoder = nn.ConvTranspose1d(filters, 1, 16, stride=8, bias=False)
        self.speakers = speakers

    def forward(self, sound: Tensor) -> Tensor:
        waves = F.relu(self.encoder(sound))
        masks = torch.sigmoid(self.masks(self.blocks(self.enter(self.norm(waves)))))
        return torch.cat([self.decoder(waves * mask) for mask in masks.chunk(self.speakers, 1)], 1)


class Gru(nn.Module):
    """Two recurrent layers over a second of features, and a decision."""

    def __init__(self, features: int = 40, width: int = 128, classes: int = 12) -> None:
        super().__init__()
        self.layers, self.head = nn.GRU(features, width, 2, batch_first=True), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0][:, -1])
