"""Blocks in vendors' steps, and the generator of their graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from edgewright.errors import FormatError
from tests.compose import vendor_steps  # noqa: F401  (it registers the steps)
from tests.compose.builder import MOST_ELEMENTS
from tests.compose.draw import Draw, palette_of
from tests.compose.motifs import MOTIFS, Block, MissingWordError
from tests.compose.spec import InvalidSpecError, Spec, Step
from tests.compose.vendor import Vendor, draw_q

_TRIES = 120


class VendorBlock(Block):
    def __init__(self, d: Draw, b: Vendor, apply: Callable[[Step], int]) -> None:
        super().__init__(d, apply)
        self.b = b

    def add(self, op: str, *inputs: int, **attributes: Any) -> int:
        if op not in self.b.words:
            raise MissingWordError
        return super().add(op, *inputs, **attributes)

    def act(self) -> str | None:
        return self.d.one((None, None, *self.b.acts))

    def shape(self, at: int) -> tuple[int, ...]:
        x = self.b.values[at]
        return (x.bound[0], *self.b.hw(x), self.b.channels(x)) if self.b.image(x) else x.bound

    def image(self, even: bool = False) -> int:
        return self.pick(self.b.values, lambda v: self.b.image(v) and not (even and any(n % 2 for n in self.b.hw(v))))

    def _window(self, kernel: int, stride: int, act: str | None) -> dict[str, Any]:
        return {"kernel": [kernel] * 2, "padding": [kernel // 2] * 4, "stride": [stride] * 2, "dilation": [1, 1],
                "act": act if act in self.b.acts else None, "per_channel": True, "q": draw_q(self.d),
                "seed": self.d.seed()}  # fmt: skip

    def conv(self, at: int, channels: int, kernel: int = 1, stride: int = 1, act: str | None = None) -> int:
        return self.add("conv2d", at, channels=channels, groups=1, **self._window(kernel, stride, act))

    def depthwise(self, at: int, kernel: int = 3, stride: int = 1, act: str | None = None) -> int:
        return self.add("depthwise", at, **self._window(kernel, stride, act))

    def double(self, at: int, channels: int) -> int:
        return self.add("transposed", at, channels=channels, kernel=[2, 2], stride=[2, 2], padding=[0] * 4,
                        dilation=[1, 1], per_channel=True, q=draw_q(self.d), seed=self.d.seed())  # fmt: skip

    def binary(self, kind: str, a: int, b: int, act: str | None = None) -> int:
        made = self.add("binary", a, b, kind=kind, q=draw_q(self.d))
        return self.add("act", made, kind=act) if act in self.b.acts else made

    def cat(self, *parts: int) -> int:
        return self.add("cat", *parts, dim=self.b.last(self.b.values[parts[0]]))

    def part(self, at: int, start: int, length: int) -> int:
        return self.add("slice", at, dim=self.b.last(self.b.values[at]), start=start, length=length)

    def shuffle(self, at: int) -> int:
        """Channels of two groups, in turn: apart, swapped, together. Only of dialects whose channels are last."""
        shape = list(self.b.values[at].bound)
        if self.b.caxis != 3 or shape[-1] % 2:
            raise MissingWordError
        rows = self.add("reshape", at, shape=[shape[0] * shape[1] * shape[2], 2, shape[3] // 2])
        return self.add("reshape", self.add("permute", rows, dims=[0, 2, 1]), shape=shape)

    def global_pool(self, at: int) -> int:
        axes = [1, 2] if self.b.caxis == 3 else [2, 3]
        return self.add("reduce", at, kind="mean", axes=axes, keep=True, q=draw_q(self.d))

    def function(self, kind: str, at: int) -> int:
        return self.add("function", at, kind=kind, q=[1.0, -128])

    def max_pool(self, at: int) -> int:
        return self.add("pool", at, kind="max", kernel=[3, 3], stride=[1, 1], padding=[1] * 4, dilation=[1, 1])

    def rows(self, at: int) -> int:
        n, high, wide, channels = self.b.values[at].bound
        return self.add("reshape", at, shape=[n, high * wide, channels])

    def sequence(self) -> int:
        return self.pick(self.b.values, lambda v: len(v.bound) == 3)

    def matrix(self) -> int:
        return self.pick(self.b.values, lambda v: len(v.bound) == 2)

    def linear(self, at: int, channels: int) -> int:
        return self.add("linear", at, channels=channels, per_channel=False, q=draw_q(self.d), seed=self.d.seed())

    def heads(self, at: int, count: int) -> int:
        n, length, size = self.shape(at)
        return self.add("permute", self.add("reshape", at, shape=[n, length, count, size // count]), dims=[0, 2, 1, 3])

    def unheads(self, at: int) -> int:
        n, heads, length, size = self.b.values[at].bound
        return self.add("reshape", self.add("permute", at, dims=[0, 2, 1, 3]), shape=[n, length, heads * size])

    def matmul(self, a: int, b: int, transposed: bool) -> int:
        if transposed:
            rank = len(self.b.values[b].bound)
            b = self.add("permute", b, dims=[*range(rank - 2), rank - 1, rank - 2])
        return self.add("matmul", a, b, q=draw_q(self.d))

    def softmax(self, at: int) -> int:
        return self.add("softmax", at)


def generate(name: str, new: Callable[[], Vendor], seed: int) -> Spec:
    """A graph of a vendor's dialect."""
    d, b = Draw(seed, palette_of(seed)), new()
    kind = d.one(tuple(b.types))
    inputs = [
        d.until(lambda: _input(d, kind), lambda s: math.prod(s["shape"]) <= MOST_ELEMENTS)
        for _ in range(d.weighted({1: 6.0, 2: 3.0}))
    ]
    if len(inputs) > 1 and d.chance(0.6):
        inputs[1] = {**inputs[1], "shape": inputs[0]["shape"]}
    for step in inputs:
        b.input(step)
    steps: list[Step] = []
    wanted = d.number(3, 8)
    for _ in range(_TRIES):
        if len(steps) >= wanted:
            break
        _more(d, b, steps)
    read = {i for step in steps for i in step["in"]}
    outputs = [i for i in range(len(inputs), len(b.values)) if i not in read]
    if steps and d.chance(0.2):
        outputs.append(d.number(len(inputs), len(b.values) - 1))
    return Spec(name, seed, inputs, steps, list(dict.fromkeys(outputs)), {"type": kind})


def _input(d: Draw, kind: str) -> Step:
    batch, size = d.weighted({1: 6.0, 2: 1.0}), d.size()
    rank = d.weighted({4: 6.0, 3: 1.5, 2: 1.0})
    shapes = {4: [batch, size, size if d.chance(0.6) else d.size(), d.channels()], 3: [batch, size, d.channels()],
              2: [d.one((1, 2, 5)), d.channels()]}  # fmt: skip
    return {"type": kind, "shape": shapes[rank], "scale": d.one((0.05, 0.02)), "zero": d.one((0, 3, -20, -128))}


def _more(d: Draw, b: Vendor, steps: list[Step]) -> None:
    def apply(step: Step) -> int:
        count, held = len(b.graph.ops), len(b.values)
        try:
            b.apply(step)
        except (InvalidSpecError, FormatError):
            del b.graph.ops[count:], b.values[held:]
            raise
        steps.append(step)
        return len(b.values) - 1

    try:
        if d.chance(0.35):
            made, _ = MOTIFS[d.weighted({name: weight for name, (_, weight) in MOTIFS.items()})]
            made(VendorBlock(d, b, apply))
        else:
            step = b.steps[d.weighted(b.words)].draw(d, b)
            if step is not None:
                apply(step)
    except (InvalidSpecError, MissingWordError, FormatError):
        return
