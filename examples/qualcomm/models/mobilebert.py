"""MobileBERT with a head that classifies sentences. Weights go by the names of Hugging Face's transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

HIDDEN, NARROW, EMBEDDED, HEADS = 512, 128, 128, 4


class NoNorm(nn.Module):
    """What MobileBERT has in place of layer norm: numbers to multiply by and to add."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


class Dense(nn.Module):
    """A linear layer and its norm; with ``first`` it is added to."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inside, out), NoNorm(out)

    def forward(self, x: Tensor, first: Tensor | None = None) -> Tensor:
        made = self.dense(x)
        return self.LayerNorm(made if first is None else made + first)


class Embeddings(nn.Module):
    """Each word with its neighbours."""

    def __init__(self, words: int, length: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(words, EMBEDDED)
        self.position_embeddings = nn.Embedding(length, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.embedding_transformation, self.LayerNorm = nn.Linear(3 * EMBEDDED, HIDDEN), NoNorm(HIDDEN)

    def forward(self, ids: Tensor) -> Tensor:
        words = self.word_embeddings(ids)
        near = torch.cat([pad(words[:, 1:], (0, 0, 0, 1)), words, pad(words[:, :-1], (0, 0, 1, 0))], 2)
        places = self.position_embeddings(torch.arange(ids.shape[1]))
        return self.LayerNorm(self.embedding_transformation(near) + places + self.token_type_embeddings.weight[0])


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(NARROW, NARROW),
            nn.Linear(NARROW, NARROW),
            nn.Linear(HIDDEN, NARROW),
        )

    def forward(self, narrow: Tensor, wide: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = narrow.shape
        parts = (self.query(narrow), self.key(narrow), self.value(wide))
        q, k, v = (p.reshape(batch, length, HEADS, NARROW // HEADS).permute(0, 2, 1, 3) for p in parts)
        scores = torch.softmax(q @ k.transpose(-1, -2) * (NARROW // HEADS) ** -0.5 + mask, -1)
        return (scores @ v).permute(0, 2, 1, 3).reshape(batch, length, NARROW)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self, self.output = SelfAttention(), Dense(NARROW, NARROW)


class Feedforward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(NARROW, HIDDEN)})
        self.output = Dense(HIDDEN, NARROW)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.intermediate["dense"](x)), x)


class Output(Dense):
    def __init__(self) -> None:
        super().__init__(HIDDEN, NARROW)
        self.bottleneck = Dense(NARROW, HIDDEN)


class Layer(nn.Module):
    """A wide stream around narrow attention and four narrow feed-forward networks."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.intermediate, self.output = nn.ModuleDict({"dense": nn.Linear(NARROW, HIDDEN)}), Output()
        self.bottleneck = nn.ModuleDict({"input": Dense(HIDDEN, NARROW), "attention": Dense(HIDDEN, NARROW)})
        self.ffn = nn.ModuleList(Feedforward() for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        narrow = self.bottleneck["input"](x)
        seen = self.attention.self(self.bottleneck["attention"](x), x, mask)
        made = self.attention.output(seen, narrow)
        for network in self.ffn:
            made = network(made)
        made = self.output(torch.relu(self.intermediate["dense"](made)), made)
        return self.output.bottleneck(made, x)


class MobileBert(nn.Module):
    """Takes the numbers of words, and a mask that is 1 for words and 0 for what fills up the sentence."""

    def __init__(self, depth: int = 24, labels: int = 5, words: int = 30522, length: int = 512) -> None:
        super().__init__()
        encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(depth))})
        self.mobilebert = nn.ModuleDict({"embeddings": Embeddings(words, length), "encoder": encoder})
        self.classifier = nn.Linear(HIDDEN, labels)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = (1 - mask.to(torch.float32))[:, None, None, :] * -100.0
        x = self.mobilebert["embeddings"](ids)
        for layer in self.mobilebert["encoder"]["layer"]:
            x = layer(x, hidden)
        return self.classifier(x[:, 0])
