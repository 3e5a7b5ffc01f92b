"""Shapes of programs: arguments, outputs, dynamic sizes, layouts, quantized graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.program.case import Case


class Constants(nn.Module):
    """Outputs that are a parameter, a buffer, a constant and a computed thing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2))
        self.register_buffer("table", torch.arange(3))
        self.plain = torch.ones(2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.weight, self.table, self.plain, self.weight.t(), x + self.weight


class Shared(nn.Module):
    """Tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


class Keywords(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor, extra: dict[str, Any]) -> dict[str, Any]:
        return {"y": x * scale, "z": [extra["a"] + 1, {"deep": extra["b"][0] - 1}]}


class Optional(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
        x = x if mask is None else x * mask
        return x if shift is None else x + shift


class Scalars(nn.Module):
    def forward(self, x: Tensor, k: int, alpha: float, flip: bool, mode: str = "relu") -> Tensor:
        y = x.topk(k).values * alpha
        return getattr(F, mode)(-y if flip else y)


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.heads = nn.ModuleList([nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 3, padding=1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        y = F.relu(self.stem(x))
        return [head(y) for head in self.heads] + [y.mean((2, 3))]


class Last(nn.Module):
    """Channels-last inside and out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(self.norm(self.conv(x.to(memory_format=torch.channels_last))))
        y = F.max_pool2d(y, 2) + 1
        return y.flatten(1), y.contiguous().mean((2, 3))


class LastInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y.contiguous(), (y * 2).sum((1, 2)) + y.permute(0, 2, 3, 1).sum((2, 3)) + F.silu(y).reshape(1, -1).sum()


def duplicates(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return y, y, x, y.view(-1), x.view(-1), y[0], x


def swap(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return pair[1], pair[0]


def backwards(items: list[Tensor]) -> list[Tensor]:
    """Each result is a copy made while the program is written: none may be taken for another."""
    return items[::-1]


def nested(tree: dict[str, Any], items: list[Tensor]) -> tuple[Any, ...]:
    return tree["a"] + items[0], {"b": [tree["c"][0] * items[1]], "n": None, "k": 3}


def last_inputs(**_: int) -> tuple[Tensor]:
    return (torch.randn(1, 3, 6, 6).to(memory_format=torch.channels_last),)


STRUCTURES = [
    Case("constants_out", Constants, lambda: (torch.randn(2, 2),)),
    Case("tied_weights", Shared, lambda: (torch.randint(0, 7, (2, 3)),)),
    Case(
        "keywords",
        Keywords,
        lambda: (torch.randn(2, 3),),
        kwargs=lambda: {"scale": torch.randn(3), "extra": {"a": torch.randn(2), "b": (torch.randn(1),)}},
    ),
    Case("optional_given", Optional, lambda: (torch.randn(2, 3), torch.rand(2, 3), None)),
    Case("optional_keyword", Optional, lambda: (torch.randn(2, 3),), kwargs=lambda: {"shift": torch.randn(3)}),
    Case("scalars_baked", Scalars, lambda: (torch.randn(2, 5), 2, 0.5, True)),
    Case("branches", Branch, lambda: (torch.randn(1, 3, 6, 6),)),
    Case("channels_last", Last, lambda: (torch.randn(1, 3, 6, 6),)),
    Case("channels_last_input", LastInput, last_inputs),
    Case("duplicate_outputs", duplicates, lambda: (torch.randn(2, 3),)),
    Case("swapped_inputs", swap, lambda: ((torch.randn(2), torch.randn(3)),)),
    Case("many_inputs_returned", backwards, lambda: ([torch.randn(1 + i) for i in range(64)],)),
    Case("nested", nested, lambda: ({"a": torch.randn(2), "c": (torch.randn(2),)}, [torch.randn(2), torch.randn(2)])),
    Case("no_inputs", lambda: torch.arange(4) * 2, lambda: ()),
    Case("empty_tensor", lambda x: (torch.cat([x, x[:0]]), x[:0].sum()), lambda: (torch.randn(2, 3),)),
    Case("zero_rank", lambda x: (x + 1, x.view(1), x.expand(3), x.max()), lambda: (torch.randn(()),)),
]


# ------------------------------------------------------------------------------------------------ dynamic sizes


def symbolic(x: Tensor) -> tuple[Tensor, ...]:
    n, m = x.shape
    return (
        x.reshape(n * m),
        x.view(m * n // 1, 1),
        x[: n - 1],
        x.new_zeros(n + 1, 2 * m),
        torch.arange(n),
        x.sum() / (n * m),
    )


def half_split(x: Tensor) -> tuple[Tensor, ...]:
    n = x.shape[0] // 2
    return x[:n] * 2, x[n:], x.view(2, n, 3)[1]


def dynamic_views(x: Tensor) -> tuple[Tensor, ...]:
    b, t, c = x.shape
    heads = x.view(b, t, 2, c // 2).transpose(1, 2)
    return (
        heads.reshape(b * 2, t, c // 2),
        heads.flatten(2),
        x.flatten(1),
        x.unflatten(2, (2, 2)),
        x.permute(1, 0, 2).contiguous().view(t, -1),
        x.expand(b, t, c) + x[:, :1].expand(b, t, c),
        x.unsqueeze(1).repeat(1, 2, 1, 1),
    )


def dynamic_many(x: Tensor) -> tuple[Any, ...]:
    return (
        x.sum(0),
        x.mean(1),
        x.softmax(0),
        x.cumsum(0),
        x.sort(0),
        x.topk(2, 0),
        x.tril(),
        x.flip(0),
        F.pad(x, (0, 0, 1, 2)),
        torch.cat([x, x]),
        x.roll(1, 0),
        torch.ones_like(x),
        x.std(0),
        x.T,
        x.argmax(0),
        x @ x.T,
        torch.where(x > 0, x, 0),
        x.chunk(2, 1),
        torch.stack([x, x]),
        x.amax(),
        x.split(1, 1),
        x.max(0),
    )


class Mask(nn.Module):
    """A causal mask cut to the sequence, positions, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.positions = nn.Embedding(16, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.register_buffer("mask", torch.ones(16, 16).tril().log())

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        y = self.embed(x) + self.positions(torch.arange(t))
        return self.attend(y, y, y, attn_mask=self.mask[:t, :t], need_weights=False)[0]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def item_scale(x: Tensor, n: Tensor) -> Tensor:
    return x * n.item() + 1


def item_size(n: Tensor) -> Tensor:
    size = n.item()
    torch._check(size >= 2)
    torch._check(size <= 8)
    return torch.ones(size, 3).cumsum(0) + torch.arange(size)[:, None]


def sym_minmax(a: Tensor, b: Tensor) -> Tensor:
    n = torch.sym_min(a.shape[0], b.shape[0])
    return a[:n] + b[:n]


def sequence_masks(x: Tensor, lengths: Tensor) -> Tensor:
    beyond = torch.arange(x.shape[1])[None] >= lengths[:, None]
    return x.masked_fill(beyond, 0).sum(1) / lengths


def dynamic_more(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.repeat(2, 1),
        x.repeat_interleave(2, 0),
        x.triu(),
        x.diagonal(),
        x.min(),
        x.var(1),
        x.std(),
        x.norm(dim=0),
        x.logsumexp(0),
        x.prod(0),
        x.unfold(0, 3, 2).mean(-1),
        F.pad(x.T, (1, 1), mode="reflect"),
        F.pad(x.T[None], (1, 1), mode="circular"),
        (x.half() @ x.half().T).float().softmax(1),
    )


LAST = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1)).to(memory_format=torch.channels_last)


def last_images(n: int) -> tuple[Tensor]:
    return (torch.randn(n, 3, 6, 6).to(memory_format=torch.channels_last),)


B, T, N, M = (2, 6), (2, 8), (3, 9), (2, 7)

DYNAMIC = [
    Case("dynamic_linear", nn.Linear(4, 3), lambda b: (torch.randn(b, 4),), {"b": (1, 9)}, ({0: "b"},)),
    Case("dynamic_symbolic", symbolic, lambda n, m: (torch.randn(n, m),), {"n": N, "m": M}, ({0: "n", 1: "m"},)),
    Case("dynamic_half", half_split, lambda n: (torch.randn(2 * n, 3),), {"n": N}, ({0: "2*n"},)),
    Case("dynamic_views", dynamic_views, lambda b, t: (torch.randn(b, t, 4),), {"b": B, "t": T}, ({0: "b", 1: "t"},)),
    Case("dynamic_many", dynamic_many, lambda n: (torch.randn(n, 4),), {"n": N}, ({0: "n"},)),
    Case(
        "dynamic_derived",
        lambda a, b: a.reshape(-1, 2, 3).sum(1) + b,
        lambda n: (torch.randn(2 * n, 3), torch.randn(n, 3)),
        {"n": N},
        ({0: "2*n"}, {0: "n"}),
    ),
    Case(
        "dynamic_derived_sum",
        lambda a, b: a[1:] * b,
        lambda n: (torch.randn(n + 1), torch.randn(n)),
        {"n": N},
        ({0: "n+1"}, {0: "n"}),
    ),
    Case("dynamic_mask", Mask, lambda t: (torch.randint(0, 11, (1, t)),), {"t": T}, ({1: "t"},)),
    Case("dynamic_encoder", Encoder, lambda b, t: (torch.randn(b, t, 8),), {"b": B, "t": T}, ({0: "b", 1: "t"},)),
    Case(
        "dynamic_conv",
        nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(3, 2),
        ),
        lambda n, m: (torch.randn(1, 2, n, m),),
        {"n": (4, 12), "m": (4, 10)},
        ({2: "n", 3: "m"},),
    ),
    Case(
        "dynamic_stride", nn.Conv1d(2, 3, 3, stride=2), lambda n: (torch.randn(1, 2, n),), {"n": (5, 13)}, ({2: "n"},)
    ),
    Case(
        "dynamic_upsample",
        lambda x: (F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.interpolate(x, scale_factor=2.0)),
        lambda n: (torch.randn(1, 2, n, 3),),
        {"n": (2, 6)},
        ({2: "n"},),
    ),
    Case("dynamic_lstm", nn.LSTM(3, 4, batch_first=True), lambda b: (torch.randn(b, 3, 3),), {"b": B}, ({0: "b"},)),
    Case(
        "dynamic_sdpa",
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        lambda t: (torch.randn(1, 2, t, 4),),
        {"t": T},
        ({2: "t"},),
    ),
    Case(
        "dynamic_two_inputs",
        lambda a, b: torch.cat([a, b]).mean(0),
        lambda n, m: (torch.randn(n, 3), torch.randn(m, 3)),
        {"n": N, "m": M},
        ({0: "n"}, {0: "m"}),
    ),
    Case(
        "dynamic_norms",
        lambda x: (F.layer_norm(x, (4,)), F.normalize(x, dim=1), F.group_norm(x[..., None], 2)),
        lambda n: (torch.randn(n, 4),),
        {"n": N},
        ({0: "n"},),
    ),
    Case(
        "dynamic_minimum",
        sym_minmax,
        lambda n, m: (torch.randn(n, 3), torch.randn(m, 3)),
        {"n": N, "m": M},
        ({0: "n"}, {0: "m"}),
    ),
    Case("dynamic_pixel_shuffle", nn.PixelShuffle(2), lambda n: (torch.randn(1, 4, n, 3),), {"n": N}, ({2: "n"},)),
    Case(
        "dynamic_einsum",
        lambda a, b: torch.einsum("bij,bkj->bik", a, b),
        lambda b, t: (torch.randn(b, t, 3), torch.randn(b, t, 3)),
        {"b": B, "t": T},
        ({0: "b", 1: "t"}, {0: "b", 1: "t"}),
    ),
    Case(
        "dynamic_lengths",
        sequence_masks,
        lambda t: (torch.randn(2, t), torch.tensor([1, 2])),
        {"t": T},
        ({1: "t"}, None),
    ),
    Case("dynamic_more", dynamic_more, lambda n: (torch.randn(n, 4),), {"n": (5, 9)}, ({0: "n"},), rtol=1e-2),
    Case(
        "dynamic_transposed",
        nn.ConvTranspose1d(2, 3, 4, 2, 1),
        lambda t: (torch.randn(1, 2, t),),
        {"t": T},
        ({2: "t"},),
    ),
    Case("dynamic_channels_last", LAST, last_images, {"n": (2, 4)}, ({0: "n"},)),
    Case(
        "dynamic_attention",
        nn.MultiheadAttention(8, 2, batch_first=True),
        lambda b, t: (torch.randn(b, t, 8),) * 3,
        {"b": (1, 4), "t": T},
        ({0: "b", 1: "t"},) * 3,
    ),
    Case("places_of_truth", lambda x: torch.where(x > 0), lambda: (torch.randn(3, 4),)),
    Case("literals_out", lambda x: (x + 1, None, 3, 2.5, True, "text"), lambda: (torch.randn(2),)),
    Case(
        "two_inputs_overwritten",
        lambda a, b: (a.add_(b), b.mul_(2), a + b)[2],
        lambda: (torch.randn(3), torch.randn(3)),
    ),
    Case("views_out", lambda x: (x.t(), x.view(-1)[1:], x.expand(2, 3, 4)), lambda: (torch.randn(3, 4),)),
    Case("item_scale", item_scale, lambda: (torch.randn(3), torch.tensor(2.5))),
    Case("item_size", item_size, lambda: (torch.tensor(5),)),
]

CASES = [*STRUCTURES, *DYNAMIC]
