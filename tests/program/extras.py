"""What people also write: losses, bags, paddings, half-precision and channels-last layers, data-dependent sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.program.case import Case
from tests.program.tensors import ints, one, two


def losses(x: Tensor, t: Tensor, p: Tensor) -> tuple[Tensor, ...]:
    return (
        F.cross_entropy(x, t),
        F.nll_loss(F.log_softmax(x, 1), t),
        F.binary_cross_entropy_with_logits(x, p),
        F.binary_cross_entropy(x.sigmoid(), p),
        F.kl_div(x, p, reduction="batchmean"),
    )


def distances(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return F.pairwise_distance(a, b), torch.cdist(a, b, 1.0), torch.linalg.cross(a[:, :3], b[:, :3])


def warped(theta: Tensor, x: Tensor) -> Tensor:
    grid = F.affine_grid(theta, (1, 2, 4, 4), align_corners=True)
    return F.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=True)


def pads1d(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.pad(x, (1, 2), mode=mode) for mode in ("reflect", "replicate", "circular"))


def pads3d(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(F.pad(x, (1, 1, 1, 1, 1, 1), mode=mode) for mode in ("reflect", "replicate"))


def picked(x: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(3, 3)
    return x[rows, columns]


def sums_of_products(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return torch.addbmm(a[0] @ b[0].T, a, b.mT, beta=0.5), torch.linalg.multi_dot([a[0], b[0].T, a[0]])


def image_layers(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.conv2d(x, x[:, :, :3, :3]),
        F.max_pool2d(x, 2),
        F.avg_pool2d(x, 2),
        F.interpolate(x, scale_factor=2),
        F.group_norm(x, 1),
        F.silu(x),
        F.hardswish(x),
        x.flatten(1).log_softmax(1),
    )


def mixed_layers(x: Tensor) -> tuple[Tensor, ...]:
    return (
        F.scaled_dot_product_attention(x, x, x),
        F.linear(x, x[0, 0]),
        x.std(1),
        x.norm(),
        x.cumsum(1),
        x.topk(2).values,
        x.argmax(1),
        x.clamp(-1, 1),
        F.elu(x),
        F.softplus(x),
        F.mish(x),
    )


def typed(dtype: torch.dtype) -> Any:
    return lambda **_: (torch.randn(1, 2, 4, 4).to(dtype),)


def last(*shape: int) -> Any:
    return lambda **_: (torch.randn(shape).to(memory_format=torch.channels_last),)


def last_activations(x: Tensor) -> tuple[Tensor, ...]:
    positive = x.abs() + 1
    made = [
        F.relu(x), F.gelu(x), F.elu(x), F.leaky_relu(x), F.hardswish(x), x.sigmoid(), x.tanh(), x.exp(),
        positive.sqrt(), positive.rsqrt(), x.clamp(0, 1), F.softmax(x, 1), x.neg(), x / 2 - 1, x.half(),
    ]  # fmt: skip
    return tuple(m.contiguous() for m in made)


def last_pools(x: Tensor) -> tuple[Tensor, ...]:
    made = [
        F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2), F.interpolate(x, scale_factor=2),
        F.interpolate(x, scale_factor=2, mode="bilinear"), F.pad(x, (1, 1)), torch.cat([x, x], 1), x[:, :2],
    ]  # fmt: skip
    return (*(m.contiguous() for m in made), x.mean((2, 3)), x.sum(1))


def last_broadcast(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    made = [x + b, x * b, x - x.mean(1, keepdim=True), x * x.mean((2, 3), keepdim=True), x + x.contiguous()]
    return tuple(m.contiguous() for m in made)


class TwoOrders(nn.Module):
    """One weight read in both orders."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        near = F.conv2d(x, self.weight)
        far = F.conv2d(x.to(memory_format=torch.channels_last), self.weight)
        return near, far.contiguous(), self.weight.flatten(1) @ self.weight.flatten(1).T


class DynamicState(nn.Module):
    """A write to as much of the state as the input is long."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(9, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.sums[: x.shape[0]].add_(x)
        return self.sums.sum(0)


def dynamic_indexing(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
    picked = x[i]
    return (
        picked,
        x.gather(0, i[:, None].expand(-1, 3)),
        x.index_select(0, i),
        torch.zeros_like(x).index_put((i,), picked),
    )


def dynamic_pools(x: Tensor) -> tuple[Tensor, ...]:
    return F.avg_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, (2, 2))


def resized(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[2:], mode="bilinear")


def small_integers(x: Tensor) -> tuple[Tensor, ...]:
    return x + x, x * 2, x.sum(), x.to(torch.int16) * 3, x.max(), x > 0, x.abs(), x.clamp(-2, 2)


def integers_and_floats(x: Tensor) -> tuple[Tensor, ...]:
    return x.float() * 0.1 + 1, x * 0.5, x + True, x.pow(0.5), torch.pow(2.0, x), x / 3


def logic(a: Tensor) -> tuple[Tensor, ...]:
    return a.any(0), a.all(), a.sum(1), a.float().mean(), ~a, a.cumsum(0), a.long(), a.any(1, keepdim=True)


FIVE_PADS = nn.Sequential(
    nn.ZeroPad2d(1), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.CircularPad2d(1), nn.ConstantPad2d(1, 2.0)
)
LAST_NET = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 2, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(),
).to(memory_format=torch.channels_last)  # fmt: skip

CASES = [
    Case("classification_losses", losses, lambda: (torch.randn(3, 5), torch.randint(0, 5, (3,)), torch.rand(3, 5))),
    Case("distances", distances, two(3, 4)),
    Case("clamp_to_tensors", lambda a, b: (a.clamp(min=b), torch.clamp(a, b, b + 1)), two(4, 3)),
    Case("warped", warped, lambda: (torch.randn(1, 2, 3), torch.randn(1, 2, 4, 4))),
    Case("quantile", lambda x: x.quantile(0.5, 1), one(3, 5)),
    Case("masked_scatter", lambda x, y: x.masked_scatter(x > 0, y), two(3, 4)),
    Case("pad_modules", FIVE_PADS, one(1, 2, 4, 4)),
    Case("pads_1d", pads1d, one(1, 2, 4)),
    Case("pads_3d", pads3d, one(1, 2, 3, 3, 3)),
    Case("embedding_bag", nn.EmbeddingBag(10, 4, mode="mean"), lambda: (torch.randint(0, 10, (2, 5)),)),
    Case(
        "embedding_bag_offsets",
        nn.EmbeddingBag(9, 4, mode="sum"),
        lambda: (torch.randint(0, 9, (6,)), torch.tensor([0, 2, 2])),
    ),
    Case("spectrum", lambda x: torch.fft.rfft(x).abs(), one(3, 8)),
    Case("spectrogram", lambda x: torch.stft(x, 8, 4, window=torch.ones(8), return_complex=True).abs(), one(1, 32)),
    Case("picked_triangle", picked, one(3, 3)),
    Case("nonzero", lambda x: x.nonzero(), lambda: (torch.tensor([1.0, 0.0, 2.0]),)),
    Case("masked_select", lambda x: x[x > 0], one(3, 4)),
    Case("sums_of_products", sums_of_products, two(2, 3, 4)),
    Case("max_unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), one(1, 2, 4, 4)),
    Case("rrelu", nn.Sequential(nn.RReLU(), nn.Softmax2d()), one(1, 2, 4, 4)),
    Case("float16_images", image_layers, typed(torch.float16), rtol=1e-2, atol=1e-2),
    Case("bfloat16_images", image_layers, typed(torch.bfloat16), rtol=5e-2, atol=5e-2),
    Case("float64_images", image_layers, typed(torch.float64)),
    Case("float16_layers", mixed_layers, typed(torch.float16), rtol=2e-2, atol=2e-2),
    Case("bfloat16_layers", mixed_layers, typed(torch.bfloat16), rtol=5e-2, atol=5e-2),
    Case("channels_last_activations", last_activations, last(1, 3, 4, 5), rtol=1e-3),
    Case("channels_last_pools", last_pools, last(1, 3, 4, 6)),
    Case("channels_last_broadcast", last_broadcast, lambda: (*last(1, 3, 4, 6)(), torch.randn(1, 3, 1, 1))),
    Case("channels_last_output", lambda x: x * 2, last(1, 3, 4, 6)),
    Case("channels_last_network", LAST_NET, last(2, 3, 8, 8)),
    Case("channels_last_weight_twice", TwoOrders, one(1, 3, 5, 5)),
    Case(
        "dynamic_resize",
        resized,
        lambda n: (torch.randn(1, 2, 4, 4), torch.randn(1, 2, n, 5)),
        {"n": (3, 9)},
        (None, {2: "n"}),
    ),
    Case(
        "dynamic_one_hot",
        lambda x: F.one_hot(x, 5).float().mean(0),
        lambda n: (torch.randint(0, 5, (n,)),),
        {"n": (3, 9)},
        ({0: "n"},),
    ),
    Case("dynamic_gru", nn.GRU(3, 4, batch_first=True), lambda n: (torch.randn(n, 3, 3),), {"n": (3, 9)}, ({0: "n"},)),
    Case(
        "dynamic_indexing",
        dynamic_indexing,
        lambda n: (torch.randn(n, 3), torch.randint(0, n, (2,))),
        {"n": (3, 9)},
        ({0: "n"}, None),
    ),
    Case("dynamic_state", DynamicState, lambda n: (torch.randn(n, 3),), {"n": (3, 9)}, ({0: "n"},), steps=3),
    Case("dynamic_volume", nn.Conv3d(2, 3, 3), lambda n: (torch.randn(n, 2, 4, 5, 5),), {"n": (2, 4)}, ({0: "n"},)),
    Case(
        "dynamic_pools",
        dynamic_pools,
        lambda n: (torch.randn(1, 2, n, 6),),
        {"n": (4, 12)},
        ({2: "n"},),
        runtime="wheel-1.3",
    ),
    Case(
        "dynamic_from_one",
        lambda x: x.flatten(1).mean(1),
        lambda n: (torch.randn(n, 3, 2),),
        {"n": (1, 4)},
        ({0: "n"},),
    ),
    Case("integers_and_floats", integers_and_floats, ints(3, 4, low=0, dtype=torch.int32)),
    Case("small_integers", small_integers, ints(3, 4, dtype=torch.int8)),
    Case("logic", logic, lambda: (torch.rand(3, 4) > 0.5,)),
]
