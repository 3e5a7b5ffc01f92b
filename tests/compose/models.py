"""Models as specs: layers by number, in PyTorch's layout, run eagerly as they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.compose.spec import Spec, Step, need

Make = Callable[[Step, list[Tensor]], nn.Module]
LAYERS: dict[str, Make] = {}
MOST_ELEMENTS, MOST_MACS = 1 << 16, 1 << 23


class Call(nn.Module):
    """A function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: Tensor) -> Any:
        return self.function(*values)


class Network(nn.Module):
    """Layer after layer; each reads values by number."""

    def __init__(self, layers: Sequence[nn.Module], reads: Sequence[Sequence[int]], outputs: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.reads, self.results = [list(r) for r in reads], list(outputs)

    def forward(self, *inputs: Tensor) -> Any:
        values = list(inputs)
        for layer, read in zip(self.layers, self.reads, strict=True):
            values.append(layer(*(values[i] for i in read)))
        made = tuple(values[i] for i in self.results)
        return made[0] if len(made) == 1 else made


class Models:
    """A model under construction, with the values its layers made of the inputs."""

    def __init__(self) -> None:
        self.values: list[Tensor] = []
        self.layers: list[nn.Module] = []

    def input(self, step: Step) -> None:
        need(step["shape"] and math.prod(step["shape"]) <= MOST_ELEMENTS)
        self.values.append(contents(step, len(self.values)))

    def as_input(self, value: Tensor) -> Step | None:
        return {"type": "f32", "shape": list(value.shape)} if value.dtype == torch.float32 else None

    def apply(self, step: Step) -> None:
        need(step["op"] in LAYERS, f"no layer {step['op']!r}")
        need(all(i < len(self.values) for i in step["in"]))
        given = [self.values[i] for i in step["in"]]
        torch.manual_seed(int(step.get("seed", 0)) + 1)
        layer = LAYERS[step["op"]](step, given).eval()
        with torch.no_grad():
            made = layer(*given)
        need(isinstance(made, Tensor) and 0 < made.numel() <= MOST_ELEMENTS and bool(torch.isfinite(made).all()))
        self.layers.append(layer)
        self.values.append(made)


def contents(step: Step, index: int, sample: int = 0) -> Tensor:
    """An input: the same for the same spec; ``sample`` numbers those to calibrate with."""
    generator = torch.Generator().manual_seed(1000 * sample + 17 * index + int(step.get("seed", 0)))
    return torch.randn(step["shape"], generator=generator)


def build_model(spec: Spec) -> tuple[Network, tuple[Tensor, ...]]:
    made = Models()
    for step in spec.inputs:
        made.input(step)
    for step in spec.steps:
        made.apply(step)
    first = len(spec.inputs)
    need(spec.outputs and all(first <= i < len(made.values) for i in spec.outputs))
    network = Network(made.layers, [s["in"] for s in spec.steps], spec.outputs)
    return network.eval(), tuple(made.values[:first])


def samples(spec: Spec, count: int) -> list[tuple[Tensor, ...]]:
    return [tuple(contents(s, i, n) for i, s in enumerate(spec.inputs)) for n in range(count)]


# --------------------------------------------------------------------------------------------------------- layers


def layer(*names: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        LAYERS.update(dict.fromkeys(names, make))
        return make

    return register


def _image(x: Tensor) -> None:
    need(x.dim() == 4)


ACTS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "clip": lambda: nn.Hardtanh(-0.7, 0.9), "hardswish": nn.Hardswish,
    "silu": nn.SiLU, "gelu": nn.GELU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "leaky_relu": lambda: nn.LeakyReLU(0.1),
    "elu": nn.ELU, "hardsigmoid": nn.Hardsigmoid, "prelu": nn.PReLU, "abs": lambda: Call(torch.abs),
    "neg": lambda: Call(torch.neg), "square": lambda: Call(torch.square),
}  # fmt: skip


def _with(core: nn.Module, step: Step, channels: int, norm: type[nn.Module] | None = nn.BatchNorm2d) -> nn.Module:
    """A product, its normalisation and its activation."""
    parts = [core]
    if step.get("norm") and norm is not None:
        made: Any = norm(channels)
        nn.init.uniform_(made.weight, 0.5, 1.5)
        nn.init.normal_(made.bias, std=0.2)
        made.running_mean.normal_(std=0.2)
        made.running_var.uniform_(0.5, 1.5)
        parts.append(made)
    if step.get("act"):
        parts.append(ACTS[step["act"]]())
    return nn.Sequential(*parts) if len(parts) > 1 else core


@layer("conv2d")
def _conv(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    _image(x)
    groups, channels, kernel = s.get("groups", 1), s["channels"], s["kernel"]
    stride, dilation, padding = s.get("stride", [1, 1]), s.get("dilation", [1, 1]), s["padding"]
    need(channels > 0 and x.shape[1] % groups == 0 and channels % groups == 0)
    need(all(n + 2 * p > d * (k - 1) for n, p, d, k in zip(x.shape[2:], padding, dilation, kernel, strict=True)))
    need(x[0, 0].numel() * channels * (x.shape[1] // groups) * math.prod(kernel) <= MOST_MACS)
    core = nn.Conv2d(x.shape[1], channels, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), groups,
                     s.get("bias", True))  # fmt: skip
    return _with(core, s, channels)


@layer("depthwise")
def _depthwise(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    _image(x)
    channels = int(x.shape[1])
    return _conv({**s, "groups": channels, "channels": channels * s.get("times", 1)}, given)


@layer("transposed")
def _transposed(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    _image(x)
    groups, channels = s.get("groups", 1), s["channels"]
    need(channels > 0 and x.shape[1] % groups == 0 and channels % groups == 0)
    need(x[0, 0].numel() * channels * x.shape[1] * math.prod(s["kernel"]) <= MOST_MACS)
    more = s.get("more", [0, 0])
    sizes = [
        (n - 1) * st + k - 2 * p + o
        for n, st, k, p, o in zip(x.shape[2:], s["stride"], s["kernel"], s["padding"], more, strict=True)
    ]
    need(min(sizes) > 0 and all(o < st for o, st in zip(more, s["stride"], strict=True)))
    core = nn.ConvTranspose2d(x.shape[1], channels, tuple(s["kernel"]), tuple(s["stride"]), tuple(s["padding"]),
                              tuple(more), groups=groups)  # fmt: skip
    return _with(core, s, channels)


@layer("linear")
def _linear(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    need(x.dim() >= 2 and s["channels"] > 0 and x.numel() * s["channels"] <= MOST_MACS)
    return _with(nn.Linear(x.shape[-1], s["channels"], s.get("bias", True)), s, s["channels"], None)


@layer("act")
def _act(s: Step, given: list[Tensor]) -> nn.Module:
    return ACTS[s["kind"]]()


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum,
    "div": lambda a, b: a / (b.abs() + 1),
}  # fmt: skip


@layer("binary")
def _binary(s: Step, given: list[Tensor]) -> nn.Module:
    a, b = given
    try:
        torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        need(False)
    made, act = _BINARY[s["kind"]], s.get("act")
    return Call(made) if act is None else Then(made, ACTS[act]())


class Then(nn.Module):
    """A function, then a module."""

    def __init__(self, function: Callable[..., Tensor], after: nn.Module) -> None:
        super().__init__()
        self.function, self.after = function, after

    def forward(self, *values: Tensor) -> Any:
        return self.after(self.function(*values))


class WithConstant(nn.Module):
    """A binary operator with a buffer."""

    def __init__(self, kind: str, shape: Sequence[int]) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("other", torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return _BINARY[self.kind](x, self.other)  # type: ignore[arg-type]


@layer("with_constant")
def _with_constant(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    need(s["shape"] != "channels" or x.dim() == 4)
    shape = {"number": (), "row": tuple(x.shape[-1:]), "whole": tuple(x.shape),
             "channels": (x.shape[1] if x.dim() > 1 else 1, 1, 1)}[s["shape"]]  # fmt: skip
    return WithConstant(s["kind"], shape)


@layer("cat")
def _cat(s: Step, given: list[Tensor]) -> nn.Module:
    dim = s["dim"]
    need(len(given) >= 2 and all(x.dim() == given[0].dim() > dim for x in given))
    rest = {(*x.shape[:dim], *x.shape[dim + 1 :]) for x in given}
    need(len(rest) == 1)
    return Call(lambda *xs: torch.cat(xs, dim))


@layer("slice")
def _slice(s: Step, given: list[Tensor]) -> nn.Module:
    dim, start, length = s["dim"], s["start"], s["length"]
    need(dim < given[0].dim() and start >= 0 and length > 0 and start + length <= given[0].shape[dim])
    return Call(lambda x: x.narrow(dim, start, length))


@layer("chunk")
def _chunk(s: Step, given: list[Tensor]) -> nn.Module:
    dim, count, which = s["dim"], s["count"], s["which"]
    need(dim < given[0].dim() and given[0].shape[dim] % count == 0 and which < count)
    return Call(lambda x: x.chunk(count, dim)[which])


@layer("permute")
def _permute(s: Step, given: list[Tensor]) -> nn.Module:
    dims = list(s["dims"])
    need(sorted(dims) == list(range(given[0].dim())))
    return Call(lambda x: x.permute(dims))


@layer("reshape")
def _reshape(s: Step, given: list[Tensor]) -> nn.Module:
    shape = list(s["shape"])
    need(math.prod(shape) == given[0].numel() and min(shape) > 0)
    return Call(lambda x: x.reshape(shape))


@layer("shuffle")
def _shuffle(s: Step, given: list[Tensor]) -> nn.Module:
    _image(given[0])
    n, c, h, w = given[0].shape
    groups = s["groups"]
    need(c % groups == 0)
    return Call(lambda x: x.reshape(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w))


@layer("pad")
def _pad(s: Step, given: list[Tensor]) -> nn.Module:
    need(len(s["pads"]) <= 2 * given[0].dim())
    pads, value = list(s["pads"]), float(s["value"])
    return Call(lambda x: nn.functional.pad(x, pads, value=value))


@layer("pool")
def _pool(s: Step, given: list[Tensor]) -> nn.Module:
    _image(given[0])
    kernel, stride, padding = s["kernel"], s["stride"], s["padding"]
    need(all(2 * p <= k and n + 2 * p >= k for n, p, k in zip(given[0].shape[2:], padding, kernel, strict=True)))
    if s["kind"] == "max":
        return nn.MaxPool2d(tuple(kernel), tuple(stride), tuple(padding))
    return nn.AvgPool2d(tuple(kernel), tuple(stride), tuple(padding), count_include_pad=bool(s.get("counted", False)))


@layer("global_pool")
def _global_pool(s: Step, given: list[Tensor]) -> nn.Module:
    _image(given[0])
    return nn.AdaptiveAvgPool2d(1) if s.get("module", True) else Call(lambda x: x.mean((2, 3), keepdim=True))


@layer("resize")
def _resize(s: Step, given: list[Tensor]) -> nn.Module:
    _image(given[0])
    options = {"align_corners": bool(s.get("corners", False))} if s["mode"] == "bilinear" else {}
    if "factor" in s:
        factor = float(s["factor"])
        need(min(int(n * factor) for n in given[0].shape[2:]) > 0)
        return Call(lambda x: nn.functional.interpolate(x, scale_factor=factor, mode=s["mode"], **options))
    size = [int(n) for n in s["size"]]
    need(min(size) > 0)
    return Call(lambda x: nn.functional.interpolate(x, size=size, mode=s["mode"], **options))


@layer("softmax")
def _softmax(s: Step, given: list[Tensor]) -> nn.Module:
    need(s["dim"] < given[0].dim())
    return nn.Softmax(s["dim"])


@layer("reduce")
def _reduce(s: Step, given: list[Tensor]) -> nn.Module:
    dims, keep = list(s["dims"]), bool(s["keep"])
    need(dims and max(dims) < given[0].dim() and len(set(dims)) == len(dims) and (keep or len(dims) < given[0].dim()))
    made = {"mean": torch.mean, "sum": torch.sum, "amax": torch.amax, "amin": torch.amin}[s["kind"]]
    return Call(lambda x: made(x, dims, keepdim=keep))  # type: ignore[call-overload]


@layer("layer_norm")
def _layer_norm(s: Step, given: list[Tensor]) -> nn.Module:
    need(given[0].shape[-1] > 1)
    made = nn.LayerNorm(given[0].shape[-1])
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias, std=0.2)
    return made


@layer("batch_norm")
def _batch_norm(s: Step, given: list[Tensor]) -> nn.Module:
    _image(given[0])
    return _with(nn.Identity(), {"norm": True}, int(given[0].shape[1]))


@layer("matmul")
def _matmul(s: Step, given: list[Tensor]) -> nn.Module:
    a, b = given
    transposed = bool(s["flip"])
    need(a.dim() == b.dim() >= 3 and a.shape[:-2] == b.shape[:-2])
    need(
        a.shape[-1] == b.shape[-1 if transposed else -2] and a.numel() * b.shape[-2 if transposed else -1] <= MOST_MACS
    )
    scale = 1 / math.sqrt(a.shape[-1])
    return Call(lambda x, y: torch.matmul(x, y.transpose(-1, -2) if transposed else y) * scale)


@layer("attention")
def _attention(s: Step, given: list[Tensor]) -> nn.Module:
    q, k, v = given
    need(q.dim() == 4 and q.shape == k.shape == v.shape)
    causal = bool(s["causal"])
    return Call(lambda a, b, c: nn.functional.scaled_dot_product_attention(a, b, c, is_causal=causal))


class Recurrent(nn.Module):
    """The outputs of a recurrent layer."""

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.core = core

    def forward(self, x: Tensor) -> Any:
        return self.core(x)[0]


@layer("recurrent")
def _recurrent(s: Step, given: list[Tensor]) -> nn.Module:
    (x,) = given
    need(x.dim() == 3 and x.shape[1] <= 4 and s["channels"] > 0)
    made = {"lstm": nn.LSTM, "gru": nn.GRU}[s["kind"]]
    return Recurrent(made(x.shape[-1], s["channels"], batch_first=True))


class Accumulate(nn.Module):
    """State: a buffer that every call adds to."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        self.held.mul_(0.5).add_(x)  # type: ignore[operator, union-attr]
        return self.held * 1.0  # type: ignore[operator]


@layer("state")
def _state(s: Step, given: list[Tensor]) -> nn.Module:
    return Accumulate(given[0].shape)
