"""From a seed to a spec: inputs, a few blocks and single steps, and outputs that leave nothing unread."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.compose import core_elements, core_moves, core_products, core_table  # noqa: F401  (they register their steps)
from tests.compose.builder import MOST_ELEMENTS
from tests.compose.core import STEPS, Core, dynamic
from tests.compose.core_blocks import CoreBlock
from tests.compose.core_caches import cache_inputs, cached_layer
from tests.compose.draw import Draw, Palette, palette_of
from tests.compose.motifs import MOTIFS
from tests.compose.spec import InvalidSpecError, Spec, Step

_TRIES = 200
_MODES: dict[str, float] = {"f32": 3, "i8": 4, "dynamic": 3, "mixed": 2, "f16": 1.5, "u8": 0.5, "table": 3, "cache": 1}


def generate(seed: int, dialect: str = "core") -> Spec:
    """A graph of the core dialect, by that name or another."""
    made = _chain(seed) if seed % _LARGE == _LARGE - 1 else _Generator(seed).run()
    return replace(made, dialect=dialect)


_LARGE = 97  # one graph of so many has the large tensors that a chain of three layers is made for


def _chain(seed: int) -> Spec:
    """An inverted residual on an image whose middle is larger than a core's cache, and something beside it."""
    d, b = Draw(seed, Palette((8, 16, 24, 20), (52, 56))), Core()
    b.times = 8
    steps: list[Step] = []

    def apply(step: Step) -> int:
        b.apply(step)
        steps.append(step)
        return len(b.values) - 1

    given: Step = {"type": "f32", "shape": [1, d.size(), d.size(), d.channels()]}
    b.input(given)
    k = CoreBlock(d, b, apply)
    wide = k.conv(0, d.one((96, 112, 128)), act=k.act())
    middle = k.depthwise(wide, d.one((3, 5)), d.one((1, 1, 2)), k.act())
    out = k.conv(middle, k.channels(0))
    if k.shape(out) == k.shape(0):
        out = k.binary("add", *((out, 0) if d.chance(0.5) else (0, out)), act=k.act())
    beside = [k.max_pool(out), k.conv(0, 8, 3, 2)] if d.chance(0.5) else [out]
    return Spec("core", seed, [given], steps, beside, {"mode": "f32", "times": b.times})


class _Generator:
    def __init__(self, seed: int) -> None:
        self.seed, self.d, self.b = seed, Draw(seed, palette_of(seed)), Core()
        self.mode = self.d.weighted(_MODES)
        self.inputs: list[Step] = []
        self.steps: list[Step] = []
        self.allowed = {n: s.weight for n, s in self.b.steps.items() if n in allowed(self.mode)}

    def run(self) -> Spec:
        if self.mode == "cache":
            for step in cache_inputs(self.d):
                self._keep_input(step)
            if self.d.chance(0.8):
                self._try(lambda: cached_layer(self.d, self._apply))
        else:
            for _ in range(self.d.weighted({1: 6.0, 2: 3.0, 3: 1.0})):
                self._input()
        wanted = self.d.number(3, 9)
        for _ in range(_TRIES):
            if len(self.steps) >= wanted:
                break
            if self.mode != "cache" and self.d.chance(0.3):
                self._motif()
            else:
                self._single()
        return Spec("core", self.seed, self.inputs, self.steps, self._outputs(), {"mode": self.mode})

    def _input(self) -> None:
        mixed = {"mixed": ("f32", "i8"), "table": ("f32", "f32", "i64", "i32", "bool")}
        kind = self.d.one(mixed[self.mode]) if self.mode in mixed else {"dynamic": "f32"}.get(self.mode, self.mode)
        step: Step = {"type": kind, "shape": self.d.until(self._shape, lambda s: math.prod(s) <= MOST_ELEMENTS)}
        if kind in ("i8", "u8"):
            step |= {"scale": self.d.one((0.05, 0.02)), "zero": self.d.one((0, 3, -20, -128))}
        self._keep_input(step)

    def _keep_input(self, step: Step) -> None:
        self.b.input(step)
        self.inputs.append(step)

    def _shape(self) -> list[int]:
        d = self.d
        if self.inputs and d.chance(0.5):
            return list(self.inputs[-1]["shape"])
        batch = d.weighted({1: 6.0, 2: 1.0, 3: 0.5})
        size, other = d.size(), d.size()
        rank = d.weighted({4: 6.0, 3: 1.5, 2: 1.0})
        shapes = {4: [batch, size, size if d.chance(0.6) else other, d.channels()],
                  3: [batch, size, d.channels()], 2: [max(batch, d.one((1, size))), d.channels()]}  # fmt: skip
        return shapes[rank]

    def _apply(self, step: Step) -> int:
        self.b.apply(step)
        self.steps.append(step)
        return len(self.b.values) - 1

    def _single(self) -> None:
        name = self.d.weighted(self.allowed)
        step = self.b.steps[name].draw(self.d, self.b)
        if step is not None:
            try:
                self._apply(step)
            except InvalidSpecError:
                return

    def _motif(self) -> None:
        made, _ = MOTIFS[self.d.weighted({name: weight for name, (_, weight) in MOTIFS.items()})]
        if made.__name__ == "dynamic_layers" and self.mode not in ("dynamic", "mixed"):
            return
        self._try(lambda: made(CoreBlock(self.d, self.b, self._apply)))

    def _try(self, block: Callable[[], object]) -> None:
        """What of a block was made before it stopped fitting stays."""
        try:
            block()
        except (InvalidSpecError, LookupError):
            return

    def _outputs(self) -> list[int]:
        read = {i for step in self.steps for i in step["in"]}
        first = len(self.inputs)
        usable = [i for i in range(first, len(self.b.values)) if not dynamic(self.b.values[i])]
        outputs = [i for i in usable if i not in read]
        if usable and (not outputs or self.d.chance(0.2)):
            outputs.append(self.d.one(usable))
        return list(dict.fromkeys(outputs))


def allowed(mode: str) -> set[str]:
    """Steps that a kind of graph is made of."""
    moves = {"permute", "view", "slice", "cat", "pad", "shuffle", "clone", "clamp"}
    windows = {"conv2d", "depthwise", "transposed", "pool", "global_pool", "linear", "binary", "with_constant", "gate"}
    reals = {"unary", "softmax", "bmm"}
    if mode in ("i8", "u8"):
        return moves | windows | {"table", "convert"}
    if mode == "cache":
        return {name for name in STEPS if name.startswith("c_")} | moves - {"clamp"} | {"binary", "unary", "t_binary"}
    if mode == "table":
        table = {name for name in STEPS if name.startswith("t_")}
        return table | moves - {"clamp"} | {"conv2d", "linear", "unary", "softmax", "binary", "bmm", "depthwise"}
    if mode == "mixed":
        return moves | windows | reals | {"table", "convert", "quantize_rows", "resize"}
    if mode == "dynamic":
        return moves | windows | reals | {"quantize_rows", "resize"}
    return moves | windows | reals | ({"resize"} if mode == "f32" else set())


def size_of(spec: Spec) -> tuple[int, int, int]:
    """What shrinking makes smaller: steps, then numbers."""
    return len(spec.steps), _total(spec.steps), sum(math.prod(s["shape"]) for s in spec.inputs)


def _total(tree: Any) -> int:
    if isinstance(tree, dict):
        return sum(_total(v) for k, v in tree.items() if k not in ("in", "seed"))
    if isinstance(tree, list):
        return sum(_total(v) for v in tree)
    return abs(tree) if isinstance(tree, int) and not isinstance(tree, bool) else 0
