"""What graphs of vendors' operators have in common: shapes, quantization, and how steps are drawn.

A dialect says in which types it computes, which steps it has (``words``), and how each is put in its operators
(``emit_*``). Images have their channels at ``caxis``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgewright.ir.graph import Array, Graph, QParams, Value
from tests.compose.builder import MOST_MACS, Builder, StepDef
from tests.compose.draw import Draw
from tests.compose.spec import Step, need

F32 = np.dtype(np.float32)
STEPS: dict[str, StepDef] = {}


@dataclass(frozen=True)
class Geometry:
    """A window, in height and width; padding is top, bottom, left, right."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def sizes(self, image: Sequence[int]) -> tuple[int, ...]:
        pads = (sum(self.padding[:2]), sum(self.padding[2:]))
        rows = zip(image, pads, self.kernel, self.stride, self.dilation, strict=True)
        made = tuple((n + p - d * (k - 1) - 1) // s + 1 for n, p, k, s, d in rows)
        need(min(made) > 0, "the window fits")
        return made


class Vendor(Builder):
    """A graph of a vendor's operators."""

    steps = STEPS
    caxis: ClassVar[int] = 3
    types: ClassVar[dict[str, Any]] = {}  # by name: the element type; real numbers are those of kind "f"
    words: ClassVar[dict[str, float]] = {}  # steps, and how often they are drawn
    functions: ClassVar[tuple[str, ...]] = ()
    real_functions: ClassVar[tuple[str, ...]] = ()
    binaries: ClassVar[tuple[str, ...]] = ("add", "sub", "mul")
    acts: ClassVar[tuple[str, ...]] = ("relu", "relu6")

    def __init__(self) -> None:
        super().__init__("compose")
        self.scales: dict[Value, QParams] = {}  # of dialects whose values carry no scales

    # ------------------------------------------------------------------------------------------------- values

    def quant(self, value: Value) -> QParams:
        return value.q if value.q is not None else self.scales[value]

    def quantized(self, value: Value) -> bool:
        return value.q is not None or value in self.scales

    def made(self, shape: Sequence[int], dtype: Any, q: QParams | None) -> Value:
        """A result; dialects without scales in their values note them aside."""
        return self.new(shape, dtype, q)

    def q_of(self, dtype: Any, scale: float, zero: int) -> QParams:
        """``scale`` and ``zero`` are those of signed bytes; other types have theirs."""
        kind = np.dtype(dtype)
        info = np.iinfo(kind)
        wide = kind.itemsize == 2
        moved = zero + 128 if info.min == 0 else zero
        moved = (moved * 257 if info.min == 0 else 0) if wide else moved
        return QParams(float(np.float32(scale / 256 if wide else scale)), moved, kind, int(info.min), int(info.max))

    def unit(self, value: Value) -> float:
        """The scale as if of bytes."""
        q = self.quant(value)
        return float(q.scale) * (256 if q.dtype.itemsize == 2 else 1)  # type: ignore[arg-type]

    def like(self, x: Value, shape: Sequence[int], scale: float, step: Step) -> Value:
        """A computed result: real numbers as ``x``, or integers of its type with a scale that fits."""
        if not self.quantized(x):
            return self.made(shape, x.dtype, None)
        factor, zero = step.get("q", (1.0, 0))
        assert x.dtype is not None
        return self.made(shape, x.dtype, self.q_of(x.dtype, scale * factor, int(zero)))

    def moved(self, x: Value, shape: Sequence[int]) -> Value:
        """A result with the elements of ``x``."""
        return self.made(shape, x.dtype, self.quant(x) if self.quantized(x) else None)

    def input(self, step: Step) -> None:
        dtype = np.dtype(self.types[step["type"]])
        q = None if dtype.kind == "f" else self.q_of(dtype, step["scale"], step["zero"])
        self.keep(self.made(step["shape"], dtype, q))

    def as_input(self, value: Value) -> Step | None:
        name = next((n for n, t in self.types.items() if np.dtype(t) == value.dtype), None)
        if name is None:
            return None
        made: Step = {"type": name, "shape": list(value.bound)}
        if self.quantized(value):
            zero = int(np.asarray(self.quant(value).zero_point))
            info = np.iinfo(self.quant(value).dtype)
            small = zero // 257 if value.dtype == np.uint16 else zero
            made |= {"scale": self.unit(value), "zero": small - 128 if info.min == 0 else small}
        return made

    # ------------------------------------------------------------------------------------------------- images

    def image(self, x: Value) -> bool:
        return len(x.bound) == 4

    def hw(self, x: Value) -> tuple[int, int]:
        shape = [n for k, n in enumerate(x.bound) if k not in (0, self.caxis)]
        return shape[0], shape[1]

    def channels(self, x: Value) -> int:
        return int(x.bound[self.caxis] if self.image(x) else x.bound[-1])

    def picture(self, batch: int, sizes: Sequence[int], channels: int) -> tuple[int, ...]:
        return (batch, *sizes, channels) if self.caxis == 3 else (batch, channels, *sizes)

    def last(self, x: Value) -> int:
        return self.caxis if self.image(x) else len(x.bound) - 1

    # --------------------------------------------------------------------------------------------- constants

    def weights(self, x: Value, shape: Sequence[int], depth: int, seed: Step) -> tuple[Array, Any]:
        """Filters, output channels first, with a scale for each; real numbers have none."""
        rng = self.rng(seed)
        if not self.quantized(x):
            return (rng.standard_normal(shape) / math.sqrt(max(1, depth))).astype(x.dtype), None
        scales = np.asarray((rng.random(shape[0]) + 0.3) * 0.02 / math.sqrt(max(1, depth)), np.float32)
        if not seed.get("per_channel", True):
            scales = scales[:1]
        return rng.integers(-127, 128, shape).astype(np.int8), scales

    def result(self, x: Value, scales: Any, shape: Sequence[int], depth: int, step: Step) -> Value:
        if scales is None:
            return self.like(x, shape, 1.0, step)
        return self.like(x, shape, self.unit(x) * float(np.mean(scales)) * math.sqrt(depth) * 90, step)

    # ------------------------------------------------------------------------------------------- what dialects say

    def emit_conv(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value, deep: bool) -> Value:
        """``w`` is output, height, width, input; of depthwise ones 1, height, width, channels. Biases are reals."""
        raise NotImplementedError

    def emit_transposed(self, x: Value, w: Array, scales: Any, bias: Array, g: Geometry, out: Value) -> Value:
        raise NotImplementedError

    def emit_linear(self, x: Value, w: Array, scales: Any, bias: Array, out: Value) -> Value:
        raise NotImplementedError

    def emit_matmul(self, a: Value, b: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_binary(self, kind: str, a: Value, b: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_function(self, kind: str, x: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_act(self, kind: str, x: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_cat(self, parts: Sequence[Value], dim: int, out: Value) -> Value:
        raise NotImplementedError

    def emit_slice(self, x: Value, start: Sequence[int], length: Sequence[int], out: Value) -> Value:
        raise NotImplementedError

    def emit_permute(self, x: Value, dims: Sequence[int], out: Value) -> Value:
        raise NotImplementedError

    def emit_reshape(self, x: Value, shape: Sequence[int], out: Value) -> Value:
        raise NotImplementedError

    def emit_pad(self, x: Value, before: Sequence[int], after: Sequence[int], out: Value) -> Value:
        """With what stands for zero."""
        raise NotImplementedError

    def emit_pool(self, kind: str, x: Value, g: Geometry, out: Value) -> Value:
        raise NotImplementedError

    def emit_reduce(self, kind: str, x: Value, axes: Sequence[int], keep: bool, out: Value) -> Value:
        raise NotImplementedError

    def emit_resize(self, mode: str, x: Value, out: Value) -> Value:
        """To twice the size."""
        raise NotImplementedError

    def emit_softmax(self, x: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_convert(self, x: Value, out: Value) -> Value:
        raise NotImplementedError

    def emit_norm(self, kind: str, x: Value, factors: Sequence[Array], out: Value) -> Value:
        """``layer`` or ``rms``, over the last dimension, with a weight and a bias for each of its elements; ``group``,
        over pixels and half of the channels, or all, with one for each channel."""
        raise NotImplementedError

    def emit_gather(self, x: Value, places: Array, out: Value) -> Value:
        """Rows of the last dimension but one, of a tensor of three."""
        raise NotImplementedError

    def part(self, first: int) -> Graph:
        """The operators from ``first`` on, as a graph of what they read."""
        ops = self.graph.ops[first:]
        made = {v for op in ops for v in op.outputs}
        inputs = dict.fromkeys(v for op in ops for v in op.inputs() if v.data is None and v not in made)
        return Graph("part", list(inputs), [], ops)

    def padded(self, x: Value, g: Geometry) -> tuple[Value, Geometry]:
        """An image with its padding made real."""
        if not any(g.padding):
            return x, g
        top, bottom, left, right = g.padding
        before, after = [0, top, left, 0], [0, bottom, right, 0]
        shape = [n + p + r for n, p, r in zip(x.bound, before, after, strict=True)]
        made = self.emit_pad(x, before, after, self.moved(x, shape))
        return made, Geometry(g.kernel, g.stride, (0, 0, 0, 0), g.dilation, g.groups)


def step(name: str, draw: Callable[[Draw, Vendor], Step | None]) -> Callable[[Any], Any]:
    def register(build: Callable[[Vendor, Step], None]) -> Callable[[Vendor, Step], None]:
        STEPS[name] = StepDef(draw, build)  # type: ignore[arg-type]
        return build

    return register


def macs(count: int) -> None:
    need(count <= MOST_MACS, "a moderate number of products")


def draw_q(d: Draw) -> list[Any]:
    return [d.one((0.5, 1.0, 1.0, 1.0, 1.7)), d.one((0, 0, 3, -7, 25, -40, -128, 127))]
