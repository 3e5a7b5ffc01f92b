"""What each row of the XNNPACK table is tried with: functions of tensors, by row, that the row must take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A module, inputs of given shapes, and sizes that may vary: (input, dimension) -> (least, most)."""

    op: str
    module: Callable[[], nn.Module]
    shapes: Sequence[Sequence[int]]
    dynamic: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    positive: bool = False
    halves: bool = True  # also tried in half precision

    def inputs(self, seed: int = 0, shapes: Sequence[Sequence[int]] | None = None) -> tuple[Tensor, ...]:
        torch.manual_seed(seed)
        made = [torch.randn(tuple(s)) * 2 for s in (self.shapes if shapes is None else shapes)]
        return tuple(m.abs() + 0.1 if self.positive else m for m in made)


class Call(nn.Module):
    """A function as a module, with constants if it wants them."""

    def __init__(self, function: Function, *constants: Tensor) -> None:
        super().__init__()
        self.function = function
        self.names = [f"c{i}" for i in range(len(constants))]
        for name, constant in zip(self.names, constants, strict=True):
            self.register_buffer(name, constant)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, *(getattr(self, n) for n in self.names))


def fn(
    op: str, function: Function, *shapes: Sequence[int], constants: Sequence[Sequence[int]] = (), **more: Any
) -> Case:
    def make() -> nn.Module:
        torch.manual_seed(5)
        return Call(function, *(torch.randn(*c) for c in constants))

    return Case(op, make, shapes, **more)


def layer(op: str, make: Callable[[], nn.Module], *shapes: Sequence[int], **more: Any) -> Case:
    return Case(op, lambda: Call(_seeded(make)), shapes, **more)


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(5)
    module = make()
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return module


_IMAGE, _ROWS = (2, 3, 8, 9), (2, 5, 7)
_ANY = {(0, 0): (1, 4)}

_UNARY = [
    fn(op, getattr(torch, op), shape, positive=op in ("log", "sqrt", "rsqrt"))
    for op in ("abs", "ceil", "floor", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "relu")
    for shape in (_IMAGE, (7,))
] + [fn(op, getattr(torch, op), _ROWS, dynamic={(0, 1): (1, 9)}) for op in ("abs", "exp", "tanh", "sigmoid")]

_ACTIVATIONS = [
    fn("hardtanh", F.hardtanh, _IMAGE),
    fn("hardtanh", F.relu6, _ROWS),
    fn("hardtanh", lambda x: F.hardtanh(x, -0.25, 3), (4,)),
    fn("clamp", lambda x: x.clamp(-1, 1), _IMAGE),
    fn("clamp", lambda x: x.clamp(min=0.5), _ROWS),
    fn("clamp", lambda x: x.clamp(max=0.5), (3, 4)),
    fn("hardswish", F.hardswish, _IMAGE),
    fn("hardswish", F.hardswish, (5, 6)),
    fn("gelu", F.gelu, _ROWS, halves=False),
    fn("gelu", F.gelu, (3,), halves=False),
    fn("leaky_relu", F.leaky_relu, _IMAGE),
    fn("leaky_relu", lambda x: F.leaky_relu(x, 0.3), (5,)),
    layer("prelu", lambda: nn.PReLU(3), _IMAGE),
    layer("prelu", lambda: nn.PReLU(1, 0.1), _IMAGE),
    fn("pow", lambda x: x**2, _IMAGE),
    fn("pow", lambda x: x.pow(2.0), (4,)),
    fn("pow", torch.square, _ROWS),
    fn("softmax", lambda x: x.softmax(-1), _ROWS, dynamic={(0, 1): (1, 8)}),
    fn("softmax", lambda x: x.softmax(3), _IMAGE),
    fn("softmax", lambda x: x.softmax(0), (6,)),
    fn("softmax", lambda x: x.softmax(1), _IMAGE),
    fn("softmax", lambda x: F.max_pool2d(x, 2).softmax(-1), _IMAGE),
    fn("softmax", lambda x: F.max_pool2d(x, 2).softmax(1), _IMAGE),
    fn("elu", F.elu, _IMAGE),
    fn("elu", lambda x: F.elu(x, 0.3), (5,)),
    layer("prelu", lambda: nn.PReLU(5), (3, 5)),
    layer("prelu", lambda: nn.PReLU(5), _ROWS),
    layer("prelu", lambda: nn.PReLU(1), (6,)),
    fn("sigmoid", F.silu, _IMAGE),
    fn("mul", F.hardsigmoid, _IMAGE),
]

_BINARY = [
    fn(op, function, *shapes, positive=op == "div")
    for op, function in (
        ("add", torch.add),
        ("sub", torch.sub),
        ("mul", torch.mul),
        ("div", torch.div),
        ("maximum", torch.maximum),
        ("minimum", torch.minimum),
    )
    for shapes in ((_IMAGE, _IMAGE), (_IMAGE, (1, 3, 1, 1)), ((2, 1, 4), (1, 3, 4)), ((3, 4), (4,)), ((3, 4), (1,)))
] + [
    fn("add", lambda x: x + 1.5, _IMAGE),
    fn("mul", lambda x: 2 * x, _ROWS),
    fn("sub", lambda x: x - 3, (4,)),
    fn("div", lambda x: x / 4, _ROWS),
    fn("rsub", lambda x: 1 - x, _IMAGE),
    fn("add", torch.add, _IMAGE, constants=[(3, 1, 1)]),
    fn("mul", torch.mul, _IMAGE, constants=[(9,)]),
    fn("add", torch.add, _ROWS, _ROWS, dynamic={(0, 0): (1, 4), (1, 0): (1, 4)}),
    fn("add", lambda x, y: F.relu(x + y), _IMAGE, _IMAGE),
    fn("mul", lambda x, y: F.relu6(x * y), _ROWS, _ROWS),
    fn("add", lambda x: x + x, _IMAGE),
    fn("add", torch.add, _IMAGE, (9,)),
    fn("add", torch.add, (8, 9), _IMAGE),
    fn("mul", lambda x, y: F.max_pool2d(x, 2) * y, _IMAGE, (3, 1, 1)),
    fn("sub", lambda x, y: y - F.max_pool2d(x, 2), _IMAGE, (4,)),
    fn("add", torch.add, _IMAGE, ()),
    fn("mul", lambda x, y: F.max_pool2d(x, 2) * y, _IMAGE, ()),
    fn("mul", lambda x, y: F.max_pool2d(x, 2) * y, _IMAGE, (1,)),
    fn("rsub", lambda x: 1 - F.max_pool2d(x, 2), _IMAGE),
    fn("mul", lambda x, y: torch.cat([x, x * y], 1), _IMAGE, (2, 3, 1, 1), dynamic={(0, 0): (1, 4), (1, 0): (1, 4)}),
]

_PRODUCTS = [
    layer("linear", lambda: nn.Linear(7, 5), _ROWS),
    layer("linear", lambda: nn.Linear(7, 5, bias=False), (7,)),
    layer("linear", lambda: nn.Sequential(nn.Linear(7, 5), nn.ReLU6()), (3, 7), dynamic=_ANY),
    layer("linear", lambda: nn.Linear(7, 1), (1, 2, 3, 7)),
    fn("mm", torch.mm, (3, 4), (4, 5)),
    fn("mm", lambda x, y: x @ y.t(), (3, 4), (5, 4)),
    fn("mm", torch.mm, (3, 4), constants=[(4, 5)]),
    fn("mm", torch.matmul, (3, 4), constants=[(4, 5)], dynamic=_ANY),
    fn("addmm", lambda x, w, b: torch.addmm(b, x, w), (3, 4), constants=[(4, 5), (5,)]),
    fn("bmm", torch.bmm, (2, 3, 4), (2, 4, 5)),
    fn("bmm", torch.matmul, (2, 6, 3, 4), (2, 6, 4, 5)),
    fn("bmm", torch.bmm, (2, 3, 4), constants=[(2, 4, 5)]),
    fn("bmm", lambda x, y: x @ y.transpose(1, 2), (2, 3, 4), (2, 5, 4)),
]


def _conv(*args: Any, shape: Sequence[int] = (2, 4, 9, 8), dynamic: Any = (), **kwargs: Any) -> Case:
    return layer("conv2d", lambda: nn.Conv2d(*args, **kwargs), shape, dynamic=dict(dynamic))


_CONVOLUTIONS = [
    _conv(4, 6, 3),
    _conv(4, 6, 3, padding=1, stride=2),
    _conv(4, 6, (3, 2), padding=(2, 0), dilation=(1, 2)),
    _conv(4, 6, 1, bias=False),
    _conv(4, 8, 3, groups=2),
    _conv(4, 4, 3, groups=4, padding=1),
    _conv(4, 12, 3, groups=4, stride=(2, 1)),
    _conv(4, 6, 3, padding="same"),
    _conv(4, 6, 3, padding="valid"),
    _conv(1, 1, 3, shape=(1, 1, 5, 5)),
    _conv(1, 3, 3, shape=(1, 1, 5, 5)),
    _conv(4, 6, 3, padding=1, dynamic={(0, 0): (1, 4)}.items()),
    _conv(4, 6, 3, padding=1, dynamic={(0, 2): (4, 20), (0, 3): (4, 20)}.items()),
    layer("conv2d", lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()), (1, 4, 9, 8)),
    layer("conv2d", lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.ReLU6()), (1, 4, 9, 8)),
    layer("conv2d", lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.Conv2d(6, 2, 1), nn.Sigmoid()), (1, 4, 9, 8)),
    layer("conv1d", lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    layer("conv1d", lambda: nn.Conv1d(4, 8, 3, padding=2, stride=2, groups=2, dilation=2), (2, 4, 9)),
    layer("conv1d", lambda: nn.Conv1d(4, 4, 3, padding="same", groups=4), (2, 4, 9)),
    layer("conv1d", lambda: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9), dynamic=_ANY),
    layer("conv1d", lambda: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9), dynamic={(0, 2): (3, 16)}),
    layer(
        "conv1d", lambda: nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 2, 1)), (2, 4, 9)
    ),
    layer("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 6, 3), (2, 4, 5, 6)),
    layer("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), (2, 4, 5, 6)),
    layer("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 0), groups=2), (2, 4, 5, 6)),
    layer("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=4, bias=False), (2, 4, 5, 6)),
    layer("conv_transpose2d", lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3), nn.BatchNorm2d(6)), (1, 4, 5, 6)),
    layer("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), (2, 4, 5)),
    layer("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 5)),
]

_POOLS = [
    fn("max_pool2d", lambda x: F.max_pool2d(x, 2), _IMAGE),
    fn("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), _IMAGE),
    fn("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), _IMAGE),
    fn("max_pool2d", lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0), dilation=(2, 1)), _IMAGE),
    fn("max_pool2d", lambda x: F.max_pool2d(x, 2), (2, 3, 8, 8), dynamic=_ANY),
    fn("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 8, 8), dynamic={(0, 2): (4, 16)}),
    fn("avg_pool2d", lambda x: F.avg_pool2d(x, 2), _IMAGE),
    fn("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2), _IMAGE),
    fn("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), _IMAGE),
    fn("avg_pool2d", lambda x: F.avg_pool2d(x, (3, 2), divisor_override=6), _IMAGE),
    fn("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), _IMAGE, dynamic=_ANY),
    fn("mean", lambda x: x.mean((2, 3)), _IMAGE),
    fn("mean", lambda x: x.mean((-1, -2), keepdim=True), _IMAGE),
    fn("mean", lambda x: x.mean((2, 3)), _IMAGE, dynamic=_ANY),
    fn("upsample_bilinear2d", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), _IMAGE),
    fn("upsample_bilinear2d", lambda x: F.interpolate(x, (5, 20), mode="bilinear", align_corners=True), _IMAGE),
    fn("upsample_bilinear2d", lambda x: F.interpolate(x, (3, 5), mode="bilinear"), _IMAGE),
    fn("upsample_bilinear2d", lambda x: F.interpolate(x, None, 1.3, "bilinear", align_corners=True), _IMAGE),
]

_MOVES = [
    fn("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2).abs(), (2, 12, 3, 4), dynamic=_ANY),
    fn("pixel_shuffle", lambda x: F.pixel_shuffle(F.max_pool2d(x, 2), 3), (1, 9, 6, 4)),
    fn("cat", lambda *x: torch.cat(x, 1), _IMAGE, (2, 2, 8, 9)),
    *(fn("cat", lambda *x: torch.cat(x, -1).abs(), *[(2, n + 1) for n in range(count)]) for count in (3, 4, 5, 6, 11)),
    fn("cat", lambda x, y: torch.cat([F.max_pool2d(x, 2), F.max_pool2d(y, 2)], 1), _IMAGE, _IMAGE),
    fn("permute", lambda x: x.permute(0, 2, 3, 1) * 2, _IMAGE),
    fn("permute", lambda x: x.permute(2, 0, 1).exp(), _ROWS),
    fn("transpose", lambda x: x.transpose(1, 2).abs(), _ROWS, dynamic=_ANY),
    fn("t", lambda x: x.t().abs(), (3, 4)),
    fn("view", lambda x: x.reshape(2, -1).abs(), _IMAGE),
    fn("view", lambda x: x.reshape(6, 4, 18).abs(), _IMAGE),
    fn("view", lambda x: x.flatten(1).abs(), _IMAGE, dynamic=_ANY),
    fn("view", lambda x: F.max_pool2d(x, 2).flatten(1), _IMAGE),
    fn("unsqueeze", lambda x: x.unsqueeze(-1).abs(), _ROWS),
    fn("unsqueeze", lambda x: x.unsqueeze(0).abs(), _ROWS),
    fn("squeeze", lambda x: x.squeeze(1).abs(), (2, 1, 4)),
    fn("squeeze", lambda x: x.squeeze(-2).abs(), (3, 2, 1, 4)),
    fn("squeeze", lambda x: F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1), _IMAGE),
    fn("slice", lambda x: x[:, 1:3].abs(), _IMAGE),
    fn("slice", lambda x: x[:, :, -3:].abs(), _ROWS),
    fn("slice", lambda x: F.max_pool2d(x, 2)[:, :2, 1:], _IMAGE),
    fn("slice", lambda x: x[:, 2:100].abs(), _ROWS),
    fn("select", lambda x: x[:, 1].abs(), _IMAGE),
    fn("select", lambda x: x.select(-1, -2).abs(), _ROWS),
    fn("split", lambda x: [y.abs() for y in x.chunk(2, 1)], (2, 6, 4)),
    fn("split_with_sizes", lambda x: [y.abs() for y in x.split([1, 3], 1)], (2, 4, 4)),
    fn("unbind", lambda x: [y.abs() for y in x.unbind(1)], (2, 3, 4)),
    fn("stack", lambda x, y: torch.stack([x, y], 1).abs(), _ROWS, _ROWS),
    fn("pad", lambda x: F.pad(x, (1, 2)).abs(), _ROWS),
    fn("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=1.5).abs(), _IMAGE),
    fn("pad", lambda x: F.max_pool2d(F.pad(x, (1, 0, 1, 0, 2, 1)), 2), _IMAGE),
    fn("pad", lambda x: F.pad(x, (-1, 1)).abs(), _ROWS),
    fn("clone", lambda x: x.clone().abs(), _IMAGE),
    fn("expand", lambda x: x.expand(2, 3, 4).abs(), (2, 3, 4)),
    fn("amax", lambda x: x.amax((2, 3), keepdim=True), _IMAGE),
    fn("amax", lambda x: x.amax((-1, 2)), _IMAGE, dynamic=_ANY),
    fn("max_dim", lambda x: x.max(2).values, _IMAGE),
    fn("max_dim", lambda x: x.max(-1, keepdim=True)[0], _IMAGE),
    fn("slice", lambda x: x[:, 1:3].abs(), _IMAGE, dynamic=_ANY),
    fn("slice", lambda x: x.split(2, 1)[1].abs(), _IMAGE, dynamic=_ANY),
    fn("select", lambda x: F.max_pool2d(x, 2)[:, 1], _IMAGE, dynamic=_ANY),
    fn("select", lambda x: F.max_pool2d(x, 2)[:, :, 1] * 2, _IMAGE),
    fn("stack", lambda *x: torch.stack(x, -1).abs(), *[(2, 3)] * 7),
    fn("stack", lambda x: torch.stack([x, -x], 0), (3, 4), dynamic=_ANY),
    fn("cat", lambda x: torch.cat([x, x.to(memory_format=torch.channels_last).abs()], 1), _IMAGE),
]

_NORMS = [
    layer("conv2d", lambda: nn.Conv3d(2, 3, 3), (1, 2, 5, 5, 5)),
    fn("linear", lambda x, w, s: F.linear(x, w * s), (3, 4), constants=[(5, 4), (5, 1)]),
    layer("conv2d", lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 2, 3)), _IMAGE),
    layer("batch_norm", lambda: nn.BatchNorm2d(3), _IMAGE),
    layer("batch_norm", lambda: nn.BatchNorm1d(5), (3, 5)),
    layer("batch_norm", lambda: nn.BatchNorm1d(5), _ROWS),
    layer("batch_norm", lambda: nn.BatchNorm3d(3), (1, 3, 2, 4, 5)),
    layer("batch_norm", lambda: nn.BatchNorm2d(3, affine=False), _IMAGE),
    layer("batch_norm", lambda: nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1)), _IMAGE),
    layer("linear", lambda: nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5)), (3, 7)),
]

CASES = _UNARY + _ACTIVATIONS + _BINARY + _PRODUCTS + _CONVOLUTIONS + _POOLS + _MOVES + _NORMS

# What must be left to the portable kernels, and words of the sentence that says why.
REFUSED: list[tuple[Case, str]] = [
    (fn("add", lambda x, y: torch.add(x, y, alpha=2), (3, 4), (3, 4)), "alpha must be 1; got 2"),
    (fn("sub", lambda x, y: torch.sub(x, y, alpha=3), (3, 4), (3, 4)), "alpha must be 1; got 3"),
    (
        fn("div", lambda x, y: torch.div(x, y, rounding_mode="floor"), (3, 4), (3, 4)),
        "rounding_mode must be None; got floor",
    ),
    (fn("linear", lambda x, w: F.linear(x, w), (3, 4), (5, 4)), "weight and bias must be constant; got weight"),
    (
        fn("conv2d", lambda x, w: F.conv2d(x, w), (1, 2, 5, 5), (3, 2, 3, 3)),
        "weight and bias must be constant; got weight",
    ),
    (fn("gelu", lambda x: F.gelu(x, approximate="tanh"), (3, 4)), "approximate must be none; got tanh"),
    (fn("pow", lambda x: x**3, (3, 4)), "the exponent must be 2; got 3"),
    (
        fn("max_pool2d", lambda x: F.max_pool2d(x, 2, 3), _IMAGE),
        "pooling strides must not be larger than the window; got [3, 3]",
    ),
    (fn("max_pool2d", lambda x: F.max_pool2d(x, 1), _IMAGE), "larger than 1x1; got [1, 1]"),
    (fn("max_pool2d", lambda x: F.max_pool2d(x, 2)[0], (3, 8, 8)), "rank of self must be 4; got 3"),
    (
        fn("max_pool2d", lambda x: F.max_pool2d(x, 2, return_indices=True), _IMAGE),
        "only the first output may be used; got 2",
    ),
    (fn("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 1, 1), _IMAGE), "must exclude padding"),
    (fn("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), _IMAGE), "got ceil_mode"),
    (fn("avg_pool2d", lambda x: F.avg_pool2d(x, 2, divisor_override=3), _IMAGE), "got divisor 3"),
    (fn("mean", lambda x: x.mean(1), _IMAGE), "means must be over height and width of an NCHW tensor; got [1]"),
    (fn("amax", lambda x: x.amax(1), _IMAGE), "maxima must be over static height or width"),
    (fn("slice", lambda x: x[:, ::2].abs(), _ROWS), "got step 2"),
    (fn("expand", lambda x: x.expand(3, 4).abs(), (1, 4)), "expand must not repeat elements"),
    (
        fn(
            "view",
            lambda x: x.reshape(x.shape[0], x.shape[1] * 2, 2).abs(),
            (2, 5, 4),
            dynamic={(0, 0): (2, 4), (0, 1): (2, 8)},
        ),
        "at most one dimension of a reshape may be dynamic; got 2",
    ),
    (fn("slice", lambda x: x[:, : x.shape[1] - 1].abs(), _ROWS, dynamic={(0, 1): (3, 9)}), "computed at run time"),
    (
        fn(
            "upsample_bilinear2d",
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            _IMAGE,
            dynamic={(0, 2): (4, 16)},
        ),
        "output size must be static",
    ),
    (
        fn("upsample_bilinear2d", lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), (2, 3, 5, 7)),
        "scale factors of a resize must equal the ratio of output size to input size",
    ),
    (
        fn("max_pool2d", lambda x: F.max_pool2d(x, 2, 1, ceil_mode=True), _IMAGE, dynamic={(0, 2): (4, 16)}),
        "ceil_mode needs static shapes",
    ),
    (
        fn(
            "conv1d",
            lambda x, w: F.conv1d(x, w),
            (2, 4, 9),
            constants=[(3, 4, 3)],
            dynamic={(0, 0): (1, 4), (0, 2): (4, 16)},
        ),
        "at most one dimension of a sequence may be dynamic",
    ),
    (fn("sum", lambda x: x.sum(1), (3, 4)), "xnnpack has no row for sum"),
    (fn("add", lambda x: (x > 0).int() + (x > 1).int(), (3, 4)), "element type must be float32 or float16"),
    (fn("abs", lambda x: x[None, None, None, None, None].abs(), (2, 3)), "rank must be at most 6; got 7"),
]
