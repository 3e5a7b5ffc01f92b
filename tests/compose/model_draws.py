"""How models are drawn: single layers, and blocks in layers' words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from torch import Tensor

from edgewright.quantize.methods import HEADROOM, METHODS, MSE, PERCENTILE
from tests.compose.draw import Draw, Palette, palette_of
from tests.compose.idioms import draw_idiom
from tests.compose.models import ACTS, MOST_ELEMENTS, Models
from tests.compose.motifs import MOTIFS, Block, MissingWordError
from tests.compose.spec import InvalidSpecError, Spec, Step

_TRIES = 100
_EMULATED = 8  # one of so many models for a Qualcomm SoC runs in its emulator, too, which is slow
_IMPROVED, _TRAINED = 1 / 4, 1 / 24  # of the quantized models
_ACTS = tuple(ACTS)
Propose = Callable[[Draw, list[Tensor]], Step | None]
DRAWS: dict[str, tuple[Propose, float]] = {}


def proposes(name: str, weight: float) -> Callable[[Propose], Propose]:
    def register(made: Propose) -> Propose:
        DRAWS[name] = (made, weight)
        return made

    return register


def _any(d: Draw, values: list[Tensor], rank: int | None = None) -> int | None:
    return d.value(values, lambda v: v.dim() >= 2 if rank is None else v.dim() == rank)


def _act(d: Draw) -> str | None:
    return d.one((None, "relu", "relu6", "hardswish", "silu", "clip"))


@proposes("conv2d", 3)
def _conv(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values, 4)
    if at is None:
        return None
    kernel = d.one(([1, 1], [3, 3], [3, 3], [5, 5], [1, 3], [2, 2]))
    padding = [k // 2 for k in kernel] if d.chance(0.8) else [0, 0]
    groups = 2 if d.chance(0.1) and values[at].shape[1] % 2 == 0 else 1
    return {"op": "conv2d", "in": [at], "channels": d.channels() * groups, "kernel": kernel, "padding": padding,
            "stride": d.one(([1, 1], [1, 1], [2, 2])), "dilation": [1, 1] if d.chance(0.9) else [2, 2],
            "groups": groups, "bias": d.chance(0.7), "norm": d.chance(0.4), "act": _act(d),
            "seed": d.seed()}  # fmt: skip


@proposes("stem", 0.7)
def _stem(d: Draw, values: list[Tensor]) -> Step | None:
    """A network's first layer: a wide kernel over the colors of a picture."""
    at = d.value(values, lambda v: v.dim() == 4 and v.shape[1] == 3)
    if at is None:
        return None
    k = d.one((4, 5, 7))
    return {"op": "conv2d", "in": [at], "channels": d.channels(), "kernel": [k, k], "padding": [k // 2, k // 2],
            "stride": d.one(([1, 1], [2, 2], [2, 2])), "bias": d.chance(0.7), "norm": d.chance(0.5), "act": _act(d),
            "seed": d.seed()}  # fmt: skip


@proposes("depthwise", 2)
def _depthwise(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values, 4)
    if at is None:
        return None
    k = d.one((3, 3, 5, 7))
    return {"op": "depthwise", "in": [at], "kernel": [k, k], "padding": [k // 2, k // 2], "bias": d.chance(0.7),
            "stride": d.one(([1, 1], [1, 1], [2, 2])), "norm": d.chance(0.4), "act": _act(d),
            "seed": d.seed()}  # fmt: skip


@proposes("transposed", 0.4)
def _transposed(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values, 4)
    if at is None:
        return None
    k, stride = d.one((2, 3, 4)), d.one((1, 2, 2, 3))
    more = 1 if stride > 1 and d.chance(0.3) else 0  # rows and columns that PyTorch adds behind
    groups = values[at].shape[1] if d.chance(0.2) else 1
    return {"op": "transposed", "in": [at], "channels": d.channels() * groups, "kernel": [k, k],
            "stride": [stride, stride], "padding": [k // 3, k // 3], "more": [more, more], "groups": groups,
            "norm": d.chance(0.3), "act": _act(d), "seed": d.seed()}  # fmt: skip


@proposes("linear", 2)
def _linear(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    return None if at is None else {"op": "linear", "in": [at], "channels": d.channels(), "bias": d.chance(0.8),
                                    "act": _act(d), "seed": d.seed()}  # fmt: skip


@proposes("act", 2)
def _single(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    return None if at is None else {"op": "act", "in": [at], "kind": d.one(_ACTS), "seed": d.seed()}


@proposes("binary", 3)
def _binary(d: Draw, values: list[Tensor]) -> Step | None:
    first, second = _any(d, values), _any(d, values)
    if first is None or second is None:
        return None
    kind = d.one(("add", "add", "sub", "mul", "maximum", "minimum", "div"))
    return {"op": "binary", "in": [first, second], "kind": kind, "act": d.one((None, None, "relu"))}


@proposes("with_constant", 0.6)
def _with_constant(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    return None if at is None else {"op": "with_constant", "in": [at], "kind": d.one(("add", "mul", "sub")),
                                    "shape": d.one(("number", "row", "whole", "channels")),
                                    "seed": d.seed()}  # fmt: skip


@proposes("cat", 2)
def _cat(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    if at is None:
        return None
    dim = d.one((1, 1, values[at].dim() - 1))
    rest = lambda v: (*v.shape[:dim], *v.shape[dim + 1 :])  # noqa: E731
    other = d.value(values, lambda v: v.dim() == values[at].dim() and rest(v) == rest(values[at]))
    return None if other is None else {"op": "cat", "in": [at, other], "dim": dim}


@proposes("slice", 1.5)
def _slice(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    if at is None:
        return None
    dim = d.one((1, values[at].dim() - 1))
    size = int(values[at].shape[dim])
    start = d.number(0, size - 1)
    return {"op": "slice", "in": [at], "dim": dim, "start": start, "length": d.number(1, size - start)}


@proposes("chunk", 1)
def _chunk(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    return None if at is None else {"op": "chunk", "in": [at], "dim": 1, "count": 2, "which": d.number(0, 1)}


@proposes("permute", 1)
def _permute(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    if at is None:
        return None
    dims = list(range(values[at].dim()))
    d.random.shuffle(dims)
    return {"op": "permute", "in": [at], "dims": d.one(([0, 2, 3, 1], [0, 3, 1, 2], dims)) if len(dims) == 4 else dims}


@proposes("reshape", 1.2)
def _reshape(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values)
    if at is None:
        return None
    shape = [int(n) for n in values[at].shape]
    how = d.one(("flat", "rows", "join", "split"))
    if how == "flat":
        shape = [shape[0], math.prod(shape[1:])]
    elif how == "rows" and len(shape) == 4:
        shape = [shape[0], shape[1], shape[2] * shape[3]]
    elif how == "join" and len(shape) > 2:
        k = d.number(0, len(shape) - 2)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    elif len(shape) < 4:
        factor = next((f for f in (4, 3, 2) if shape[-1] % f == 0), 1)
        shape[-1:] = [factor, shape[-1] // factor]
    return {"op": "reshape", "in": [at], "shape": shape}


@proposes("pool", 1)
def _pool(d: Draw, values: list[Tensor]) -> Step | None:
    at = _any(d, values, 4)
    k = d.one((2, 3))
    return None if at is None else {"op": "pool", "in": [at], "kind": d.one(("max", "avg")), "kernel": [k, k],
                                    "stride": d.one(([1, 1], [2, 2])), "padding": d.one(([0, 0], [k // 2, k // 2])),
                                    "counted": d.chance(0.3)}  # fmt: skip


@proposes("simple", 1)
def _simple(d: Draw, values: list[Tensor]) -> Step | None:
    op = d.one(("global_pool", "shuffle", "batch_norm", "softmax", "layer_norm", "state", "resize", "pad", "reduce"))
    rank = 4 if op in ("global_pool", "shuffle", "batch_norm", "resize") else None
    at = _any(d, values, rank)
    if at is None:
        return None
    x = values[at]
    more: dict[str, Any] = {
        "global_pool": {"module": d.chance(0.5)}, "shuffle": {"groups": 2}, "softmax": {"dim": x.dim() - 1},
        "resize": {"mode": d.one(("bilinear", "nearest")), "corners": d.chance(0.3),
                   **({"size": [2 * n for n in x.shape[2:]]} if d.chance(0.4) else {"factor": d.one((2.0, 1.5, 0.5))})},
        "pad": {"pads": [d.number(0, 2) for _ in range(4 if x.dim() > 2 else 2)], "value": d.one((0.0, 0.0, 0.5))},
        "reduce": {"kind": d.one(("mean", "sum", "amax")), "dims": [d.number(1, x.dim() - 1)], "keep": d.chance(0.7)},
    }.get(op, {})  # fmt: skip
    return {"op": op, "in": [at], **more, "seed": d.seed()}


@proposes("recurrent", 0.3)
def _recurrent(d: Draw, values: list[Tensor]) -> Step | None:
    at = d.value(values, lambda v: v.dim() == 3 and v.shape[1] <= 4)
    return None if at is None else {"op": "recurrent", "in": [at], "kind": d.one(("lstm", "gru")),
                                    "channels": d.one((3, 8, 16)), "seed": d.seed()}  # fmt: skip


@proposes("attention", 0.4)
def _attention(d: Draw, values: list[Tensor]) -> Step | None:
    q = d.value(values, lambda v: v.dim() == 4 and v.shape[2] <= 64)
    if q is None:
        return None
    same = [d.value(values, lambda v: v.shape == values[q].shape) for _ in range(2)]
    return {"op": "attention", "in": [q, *(s if s is not None else q for s in same)], "causal": d.chance(0.4)}


# --------------------------------------------------------------------------------------------------------- blocks


class ModelBlock(Block):
    def __init__(self, d: Draw, b: Models, apply: Callable[[Step], int]) -> None:
        super().__init__(d, apply)
        self.b = b

    def shape(self, at: int) -> tuple[int, ...]:
        shape = tuple(int(n) for n in self.b.values[at].shape)
        return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape

    def image(self, even: bool = False) -> int:
        return self.pick(self.b.values, lambda v: v.dim() == 4 and not (even and (v.shape[2] % 2 or v.shape[3] % 2)))

    def _common(self, kernel: int, stride: int, act: str | None) -> dict[str, Any]:
        return {"kernel": [kernel] * 2, "padding": [kernel // 2] * 2, "stride": [stride] * 2, "act": act,
                "bias": self.d.chance(0.7), "norm": self.d.chance(0.4), "seed": self.d.seed()}  # fmt: skip

    def conv(self, at: int, channels: int, kernel: int = 1, stride: int = 1, act: str | None = None) -> int:
        return self.add("conv2d", at, channels=channels, **self._common(kernel, stride, act))

    def depthwise(self, at: int, kernel: int = 3, stride: int = 1, act: str | None = None) -> int:
        return self.add("depthwise", at, **self._common(kernel, stride, act))

    def double(self, at: int, channels: int) -> int:
        return self.add("transposed", at, channels=channels, kernel=[2, 2], stride=[2, 2], padding=[0, 0],
                        seed=self.d.seed())  # fmt: skip

    def binary(self, kind: str, a: int, b: int, act: str | None = None) -> int:
        return self.add("binary", a, b, kind=kind, act=act)

    def _last(self, at: int) -> int:
        rank = self.b.values[at].dim()
        return 1 if rank == 4 else rank - 1

    def cat(self, *parts: int) -> int:
        return self.add("cat", *parts, dim=self._last(parts[0]))

    def part(self, at: int, start: int, length: int) -> int:
        return self.add("slice", at, dim=self._last(at), start=start, length=length)

    def shuffle(self, at: int) -> int:
        return self.add("shuffle", at, groups=2)

    def global_pool(self, at: int) -> int:
        return self.add("global_pool", at, module=self.d.chance(0.5))

    def function(self, kind: str, at: int) -> int:
        return self.add("act", at, kind=kind)

    def max_pool(self, at: int) -> int:
        return self.add("pool", at, kind="max", kernel=[3, 3], stride=[1, 1], padding=[1, 1])

    def rows(self, at: int) -> int:
        n, c, h, w = self.b.values[at].shape
        return self.add("reshape", self.add("permute", at, dims=[0, 2, 3, 1]), shape=[n, h * w, c])

    def sequence(self) -> int:
        return self.pick(self.b.values, lambda v: v.dim() == 3)

    def matrix(self) -> int:
        return self.pick(self.b.values, lambda v: v.dim() == 2)

    def linear(self, at: int, channels: int) -> int:
        return self.add("linear", at, channels=channels, seed=self.d.seed())

    def heads(self, at: int, count: int) -> int:
        n, length, size = self.shape(at)
        return self.add("permute", self.add("reshape", at, shape=[n, length, count, size // count]), dims=[0, 2, 1, 3])

    def unheads(self, at: int) -> int:
        n, heads, length, size = self.b.values[at].shape
        return self.add("reshape", self.add("permute", at, dims=[0, 2, 1, 3]), shape=[n, length, heads * size])

    def matmul(self, a: int, b: int, transposed: bool) -> int:
        return self.add("matmul", a, b, flip=transposed)

    def softmax(self, at: int) -> int:
        return self.add("softmax", at, dim=self.b.values[at].dim() - 1)

    def bias(self, at: int) -> int:
        return self.add("with_constant", at, kind="add", shape="row", seed=self.d.seed())


# ------------------------------------------------------------------------------------------------------ generator


def generate_model(seed: int, target: str, quantize: str | None) -> Spec:
    """A model for a target; the same model for all of them."""
    d = Draw(seed, _palette(seed))
    models = Models()
    steps: list[Step] = []
    inputs = [_input(d)]
    if d.chance(0.25):
        inputs.append(inputs[0] | {"seed": 1} if d.chance(0.6) else _input(d))
    for step in inputs:
        models.input(step)
    wanted = d.number(3, 8)
    if inputs[0]["shape"][1:2] == [3] and d.chance(0.5):
        _more(d, models, steps, _stem)
    for _ in range(_TRIES):
        if len(steps) >= wanted:
            break
        _more(d, models, steps)
    last = draw_idiom(seed, models.values)
    if last is not None:
        _more(d, models, steps, lambda *_: last)
    read = {i for step in steps for i in step["in"]}
    outputs = [i for i in range(len(inputs), len(models.values)) if i not in read]
    if steps and d.chance(0.15):
        outputs.append(d.number(len(inputs), len(models.values) - 1))
    options: dict[str, Any] = {"target": target, "quantize": quantize}
    if target.startswith("sm") and seed % _EMULATED == 0:
        options["emulator"] = True
    if quantize not in (None, "fp16"):
        options |= _improvement(seed, quantize, any(step["op"] in ("state", "chained_writes") for step in steps))
    return Spec("model", seed, inputs, steps, list(dict.fromkeys(outputs)), options)


def _improvement(seed: int, quantize: str, has_state: bool) -> dict[str, Any]:
    """Methods that improve rounding for a quarter of the models, training for one of 24. Choices of their own: the
    models of a seed stay what they were without them."""
    r = random.Random(f"improve {seed}")
    kind = r.random()
    if kind < _TRAINED:
        return {} if has_state else {"train": True}
    if kind >= _TRAINED + _IMPROVED:
        return {}
    possible = [m for m in METHODS if m != HEADROOM or quantize.startswith("a16")]
    methods = [m for m in possible if r.random() < 0.4] or [r.choice(possible)]
    if PERCENTILE in methods and MSE in methods:
        methods.remove(r.choice((PERCENTILE, MSE)))
    return {"methods": methods}


def _palette(seed: int) -> Palette:
    drawn = palette_of(seed * 16)  # models share no kernels worth speaking of
    return drawn


def _input(d: Draw) -> Step:
    return {"type": "f32", "shape": d.until(lambda: _shape(d), lambda shape: math.prod(shape) <= MOST_ELEMENTS)}


def _shape(d: Draw) -> list[int]:
    rank = d.weighted({4: 7.0, 3: 2.0, 2: 1.0})
    batch = d.weighted({1: 8.0, 2: 1.0})
    size = d.size()
    channels = 3 if d.chance(0.15) else d.channels()
    shapes = {4: [batch, channels, size, size if d.chance(0.7) else d.size()],
              3: [batch, d.one((1, 3, 4, size)), d.channels()], 2: [d.one((1, 2, 5)), d.channels()]}  # fmt: skip
    return shapes[rank]


def _more(d: Draw, models: Models, steps: list[Step], layer: Propose | None = None) -> None:
    """A block, or a layer: ``layer``, or any."""

    def apply(step: Step) -> int:
        models.apply(step)
        steps.append(step)
        return len(models.values) - 1

    try:
        if layer is None and d.chance(0.35):
            made, _ = MOTIFS[d.weighted({name: weight for name, (_, weight) in MOTIFS.items()})]
            made(ModelBlock(d, models, apply))
        else:
            propose = layer or DRAWS[d.weighted({name: weight for name, (_, weight) in DRAWS.items()})][0]
            step = propose(d, models.values)
            if step is not None:
                apply(step)
    except (InvalidSpecError, MissingWordError):
        return
