"""Operators on tensors: arithmetic, types, indexing, shapes, reductions, creation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tests.program.case import Case


def one(*shape: int):
    return lambda **_: (torch.randn(shape),)


def two(*shape: int):
    return lambda **_: (torch.randn(shape), torch.randn(shape))


def ints(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64):
    return lambda **_: (torch.randint(low, high, shape, dtype=dtype),)


def scalars(x: Tensor) -> tuple[Tensor, ...]:
    return 2 - x, 1 / (x + 3), x**2, 2**x, x // 0.5, x % 0.7, x > 0, x <= 0, x * True


def integers(x: Tensor) -> tuple[Tensor, ...]:
    return x + 1, x * 2.5, x / 2, x // 2, x % 3, -x, x.abs(), x & 6, x | 1, x ^ 3, ~x, x << 1, x >> 1, x**2


def booleans(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return a & b, a | b, ~a, a ^ b, a.logical_and(b), a.any(), a.all(1), a.sum(), a == b, a.float() + b


def unary(x: Tensor) -> tuple[Tensor, ...]:
    p = x.abs() + 0.1
    return (
        x.exp(),
        p.log(),
        p.sqrt(),
        p.rsqrt(),
        x.sin(),
        x.cos(),
        x.tan(),
        x.erf(),
        x.floor(),
        x.ceil(),
        x.round(),
        x.trunc(),
        x.sign(),
        x.atan(),
        x.sinh(),
        x.expm1(),
        p.log1p(),
        p.log2(),
        p.log10(),
        p.reciprocal(),
        x.square(),
        x.frac(),
        x.sigmoid(),
        x.isnan(),
        x.isinf(),
        x.isfinite(),
    )


def inverse_erf(x: Tensor, ends: Tensor) -> tuple[Tensor, ...]:
    inside = x.tanh()
    return inside.erfinv(), inside.double().erfinv(), inside.half().erfinv(), ends.erfinv(), ends.int().erfinv()


def ends_of_erf(**_: int) -> tuple[Tensor, Tensor]:
    return torch.randn(3, 40) * 2, torch.tensor([-1, 1, 0, 1.5, torch.nan, 0.9999999, -0.99999, 1e-30])


def binary(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.maximum(a, b),
        torch.minimum(a, b),
        torch.atan2(a, b),
        a.abs().pow(b),
        torch.fmod(a, b),
        torch.remainder(a, b),
        torch.div(a, b, rounding_mode="floor"),
        torch.hypot(a, b),
        a.copysign(b),
        torch.lerp(a, b, 0.3),
        torch.add(a, b, alpha=2),
        torch.sub(a, b, alpha=3),
        torch.logaddexp(a, b),
        torch.addcmul(a, a, b, value=2),
        torch.addcdiv(a, a, b.abs() + 1),
        torch.fmax(a, b),
        a.dist(b),
    )


def reductions(x: Tensor) -> tuple[Any, ...]:
    return (
        x.sum(),
        x.mean(1),
        x.sum((0, 2), keepdim=True),
        x.amax(1),
        x.amin(),
        x.max(1),
        x.min(0).values,
        x.prod(1),
        x.argmax(1),
        x.argmin(),
        x.norm(),
        x.norm(dim=1),
        x.logsumexp(1),
        (x > 0).any(1),
        x.max(),
        x.min(),
        x.median(),
        x.nansum(),
        x.count_nonzero(1),
        x.abs().mean(),
    )


def spread(x: Tensor) -> tuple[Tensor, ...]:
    return x.std(), x.var(1), x.std(0, unbiased=False), x.var((0, 1), correction=0, keepdim=True), *torch.var_mean(x, 1)


def indexing(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    return x[i], x[:, i], x[i, i], x[0], x[-1, 1:], x[..., None], x[::2], x[i[:, None], i], x[None, :, 1]


def gathering(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    return (
        x.gather(1, i),
        x.index_select(0, i[0]),
        x.take_along_dim(i, 1),
        x.scatter(1, i, 9.0),
        torch.zeros_like(x).scatter_add(1, i, x),
    )


def index_writes(x: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    return (
        x.index_put((i,), v),
        x.index_put((i,), v, accumulate=True),
        x.index_add(0, i, v),
        x.index_copy(0, i, v),
        x.index_fill(0, i, 3.0),
    )


def choices(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.where(x > 0, x, -x),
        torch.where(x > 0, 1.0, 0.0),
        x.masked_fill(x > 0, float("-inf")),
        x.clamp(-1, 1),
        x.clamp(min=0),
        x.clamp_max(0.5),
        torch.where(x > 0, x, 0),
        x.nan_to_num(),
        torch.heaviside(x, x[0]),
    )


def splits(x: Tensor) -> tuple[Any, ...]:
    return x.split(2), x.split([1, 3]), x.chunk(3), x.unbind(1), torch.tensor_split(x, 2), x.hsplit(2)


def joins(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.cat([a, b]),
        torch.stack([a, b], 1),
        torch.cat([a, b, a], -1),
        torch.hstack([a, b]),
        torch.vstack([a, b]),
        torch.stack([a, b], -1),
        torch.dstack([a, b]),
    )


def reshapes(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.view(-1),
        x.reshape(3, -1),
        x.flatten(1),
        x.unflatten(2, (2, 2)),
        x.permute(2, 0, 1),
        x.mT,
        x.transpose(0, 1).reshape(-1),
        x.unsqueeze(1).squeeze(),
        x.expand(2, *x.shape),
        x.movedim(0, -1),
        x.swapaxes(0, 1),
        x.repeat(2, 1, 3),
        x.repeat_interleave(2, 1),
        x.tile(2),
        x.ravel(),
        x.view_as(x),
        x.narrow(1, 1, 2),
        x[:1].squeeze(0),
        x.T if x.dim() == 2 else x.mT,
    )


def moves(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.roll(1),
        x.roll((1, 2), (0, 1)),
        x.flip(0),
        x.flip((0, 1)),
        x.tril(),
        x.triu(1),
        x.diagonal(),
        torch.diag(x[0]),
        x.rot90(),
        x.trace(),
        torch.tril(torch.ones(3, 3)),
        x.unfold(1, 2, 1),
        x.fliplr(),
    )


def pads(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.pad(x, (1, 2)),
        F.pad(x, (1, 0, 2, 1), value=3.0),
        F.pad(x, (1, 2, 1, 1), mode="reflect"),
        F.pad(x, (1, 1, 0, 1), mode="replicate"),
        F.pad(x, (1, 1, 1, 1), mode="circular"),
        F.pad(x, (-1, 0)),
    )


def products(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        a @ b.mT,
        torch.einsum("bij,bkj->bik", a, b),
        torch.bmm(a, b.mT),
        torch.baddbmm(a @ b.mT, a, b.mT, beta=0.5),
        torch.einsum("bij,bij->b", a, b),
        torch.tensordot(a, b, dims=([0, 2], [0, 2])),
        torch.outer(a[0, 0], b[0, 0]),
        a[0] @ b[0, 0],
        a[0, 0] @ b[0, 0],
        torch.addmm(a[0], a[0] @ b[0].T, b[0], alpha=2),
        torch.cdist(a, b),
        torch.kron(a[0], b[0]),
        torch.matmul(a, b[0].T),
        torch.mv(a[0], b[0, 0]),
        a[0, 0] @ b[0].T,
    )


def creation(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.int32),
        torch.full_like(x, 2.5),
        x.new_zeros(2, 3),
        x.new_ones(2),
        x.new_full((2,), 7),
        torch.arange(5),
        torch.arange(1, 7, 2, dtype=torch.float32),
        torch.linspace(0, 1, 5),
        torch.eye(3),
        torch.full((2,), 3),
        torch.empty_like(x).fill_(1),
        x.new_tensor([1, 2]),
        torch.scalar_tensor(3.0),
        torch.tensor([1.0, 2.0]) + x[0, 0],
        torch.logspace(0, 1, 3),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")[1],
    )


def casts(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.half(),
        x.bfloat16(),
        x.double(),
        x.int(),
        x.long(),
        x.bool(),
        x.to(torch.uint8),
        x.type_as(x.int()),
        x.to(torch.int8).float(),
    )


def sorts(x: Tensor) -> tuple[Any, ...]:
    return (
        x.sort(1),
        x.sort(0, descending=True),
        x.argsort(1),
        x.topk(2, 1),
        x.topk(2, 0, largest=False),
        x.kthvalue(2, 1),
        x.msort(),
    )


def sums(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.cumsum(1),
        x.cumsum(0),
        x.cumsum(1, dtype=torch.float64),
        x.cumprod(1),
        x.cummax(1).values,
        x.diff(),
        x.logcumsumexp(1),
    )


def halves(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x + 1,
        x * x,
        x @ x.T,
        x.softmax(1),
        x.mean(1),
        F.layer_norm(x, (4,)),
        F.gelu(x),
        x.exp(),
        x.relu(),
        x.sum(),
        x.sigmoid(),
    )


def typed(dtype: torch.dtype):
    return lambda **_: (torch.randn(4, 4).to(dtype),)


def boxes(a: Tensor) -> Tensor:
    area = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    corner = torch.max(a[:, None, :2], a[None, :, :2])
    other = torch.min(a[:, None, 2:], a[None, :, 2:])
    inter = (other - corner).clamp(min=0).prod(2)
    return inter / (area[:, None] + area[None] - inter)


def complex_rotation(x: Tensor) -> Tensor:
    angles = torch.outer(torch.arange(3).float(), torch.tensor([1.0, 0.1]))
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


CASES = [
    Case("scalar_arithmetic", scalars, one(3, 4)),
    Case("integer_arithmetic", integers, ints(3, 4), runtime="wheel-1.1"),
    Case(
        "int32_arithmetic",
        lambda x: (x + 1, x * 2, x // 2, x / 2, x.sum(), x.float().mean()),
        ints(3, 4, dtype=torch.int32),
    ),
    Case("uint8", lambda x: (x + 1, x // 2, x.float() / 255, x > 3), ints(3, 4, low=0, dtype=torch.uint8)),
    Case("booleans", booleans, lambda: (torch.rand(3, 4) > 0.5, torch.rand(3, 4) > 0.5)),
    Case("unary", unary, one(3, 4)),
    Case("erfinv", inverse_erf, ends_of_erf),
    Case("binary", binary, two(3, 4)),
    Case(
        "broadcasting", lambda a, b: (a + b, a * b[0], a / b, a > b), lambda: (torch.randn(3, 1, 4), torch.randn(2, 4))
    ),
    Case(
        "mixed_types",
        lambda a, b: (a + b, a * b, a / b, b - a, a > b, torch.where(a > 0, a, b)),
        lambda: (torch.randn(3, 4), torch.randint(1, 5, (3, 4))),
    ),
    Case("reductions", reductions, one(3, 4, 5)),
    Case("spread", spread, one(3, 4)),
    Case("indexing", indexing, lambda: (torch.randn(3, 4), torch.tensor([0, 2]))),
    Case("boolean_write", lambda x: torch.where(x > 0, x * 2, x).index_put((torch.tensor([0]),), x[1:2]), one(3, 4)),
    Case("gathering", gathering, lambda: (torch.randn(3, 4), torch.randint(0, 3, (3, 2)))),
    Case("index_writes", index_writes, lambda: (torch.randn(4, 3), torch.tensor([2, 0]), torch.randn(2, 3))),
    Case("choices", choices, one(3, 4)),
    Case("splits", splits, one(4, 6)),
    Case("joins", joins, two(3, 4)),
    Case("reshapes", reshapes, one(2, 3, 4)),
    Case("moves", moves, one(3, 3)),
    Case("pads", pads, one(1, 3, 4, 4)),
    Case("products", products, two(2, 3, 4)),
    Case("creation", creation, one(2, 3)),
    Case("casts", casts, one(2, 3)),
    Case("casts_from_ints", casts, ints(2, 3, low=0)),
    Case("sorts", sorts, one(4, 5)),
    Case("cumulative", sums, one(3, 4)),
    Case("one_hot", lambda x: F.one_hot(x, 5), ints(2, 3, low=0, high=5)),
    Case("float16", halves, typed(torch.float16), rtol=1e-2, atol=1e-2),
    Case("bfloat16", halves, typed(torch.bfloat16), rtol=5e-2, atol=5e-2),
    Case("float64", halves, typed(torch.float64)),
    Case("autocast_mix", lambda x: (x.half() @ x.half().T).float() + 1, one(3, 4), rtol=1e-2, atol=1e-2),
    Case("box_overlap", boxes, lambda: (torch.rand(4, 4).cumsum(1),)),
    Case("rotary", complex_rotation, one(2, 3, 4)),
    Case("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), one(3, 4)),
    Case("isin", lambda x: torch.isin(x, torch.tensor([1, 3])), ints(3, 4)),
    Case("histc", lambda x: torch.histc(x * 3, 8, -2, 2), one(6, 7)),
    Case("histc_edges", lambda x: torch.histc(x, 7, 0, 7), lambda: (torch.tensor([0.0, 1, 2, 6.99, 7, 7.01, -1, 3]),)),
    Case(
        "histc_wild", lambda x: torch.histc(x, 4, -1, 1), lambda: (torch.tensor([0.0, math.nan, math.inf, -math.inf]),)
    ),
    Case("histc_own_range", lambda x: torch.histc(x, 6), one(5, 8)),
    Case("histc_one_value", lambda x: torch.histc(x, 5), lambda: (torch.ones(4),)),
    Case(
        "histc_dynamic", lambda x: torch.histc(x, 6, -1, 1), lambda t: (torch.randn(t, 3),), {"t": (2, 9)}, ({0: "t"},)
    ),
    Case("searchsorted", lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x), one(3, 4)),
    Case(
        "linalg_norms",
        lambda x: (torch.linalg.vector_norm(x, 1, 1), torch.linalg.vector_norm(x, float("inf")), x.renorm(2, 0, 1.0)),
        one(3, 4),
    ),
]
