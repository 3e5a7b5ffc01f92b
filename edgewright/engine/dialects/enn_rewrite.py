"""What ENN's translation is written with: images channels-last or as planes, and real numbers in half precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.rewrite import Rewrite
from edgewright.ir.graph import Graph, Op, Value

PIXELS = (0, 2, 3, 1)  # from planes
PLANES = (0, 3, 1, 2)  # and back: where each of the planes' dimensions lies among those of pixels
_COMPUTED = ("conv2d", "depthwise_conv2d", "linear", "add", "sub", "mul")


class EnnRewrite(Rewrite):
    """``pixels``: what holds an image channels-last, by the identity of the old value."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pixels: dict[int, Value] = {}
        self.halves: dict[int, Value] = {}  # what is rounded to half precision already, by what it is made of
        self.here = {id(v) for v in graph.inputs}  # values that are there as the graph has them

    def keep(self, op: Op) -> None:
        for value in op.inputs():
            self.planes(value)
        super().keep(op)
        self.here |= {id(v) for v in op.outputs}

    def planes(self, value: Value) -> Value:
        """A value as the graph has it."""
        if id(value) not in self.here and not value.constant:
            self._turn(self.pixels[id(value)], value, PLANES)
            self.here.add(id(value))
        return value

    def image(self, value: Value) -> Value:
        """A value of four dimensions channels-last."""
        if value.constant:
            return turned(value)
        if id(value) not in self.pixels:
            self.pixels[id(value)] = turned(value)
            self._turn(value, self.pixels[id(value)], PIXELS)
        return self.pixels[id(value)]

    def _turn(self, x: Value, out: Value, dims: tuple[int, ...]) -> None:
        """What has one pixel, or one plane, lies in memory as it did."""
        wide = x.bound[1] * x.bound[2] if dims == PLANES else x.bound[2] * x.bound[3]
        args: dict[str, Any] = {"dims": list(dims)}
        alone = wide == 1 or out.bound[3 if dims == PIXELS else 1] == 1
        if alone:
            args = {"size": list(out.bound)}
        self.ops.append(Op("view" if alone else "permute", {"self": x, **args}, [out]))

    def flat(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """An operator on values as the graph has them."""
        self._rounded(kind, op, out, args)
        self.here.add(id(out))

    def made(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """An operator that makes an image."""
        self.pixels[id(out)] = image = turned(out)
        self._rounded(kind, op, image, args)

    def _rounded(self, kind: str, op: Op, out: Value, args: dict[str, Any]) -> None:
        """Real numbers that the engine computes are brought to half precision: its own operators do not."""
        if kind not in _COMPUTED or not real(out):
            self.emit(kind, op, out, **args)
            return
        whole = replace(out, name=f"{out.name}_single")
        self.emit(kind, op, whole, **args)
        self._through_half(op, whole, out)

    def _through_half(self, op: Op, x: Value, out: Value) -> None:
        short = replace(x, name=f"{x.name}_half", dtype=np.dtype(np.float16))
        self.emit("convert", op, short, self=x)
        self.emit("convert", op, out, self=short)
        self.halves[id(out)] = out

    def half(self, op: Op, x: Value) -> Value:
        """Real numbers in half precision."""
        if id(x) not in self.halves:
            out = replace(x, name=f"{x.name}_rounded")
            self._through_half(op, x, out)
            self.halves[id(x)] = out
        return self.halves[id(x)]

    def any_pixels(self, values: list[Value]) -> bool:
        """Whether values of four dimensions are better taken channels-last: one is there only so."""
        return any(id(v) in self.pixels and id(v) not in self.here and not v.constant for v in values)


def turned(value: Value) -> Value:
    shape = tuple(value.bound[d] for d in PIXELS)
    data = None if value.data is None else np.ascontiguousarray(value.data.transpose(PIXELS))
    return replace(value, name=f"{value.name}_pixels", shape=shape, dim_order=(0, 1, 2, 3), data=data)


def byte(value: Value) -> bool:
    """Bytes with one scale."""
    q = value.q
    return q is not None and q.axis is None and q.dtype.itemsize == 1 and value.dtype == q.dtype


def real(value: Value) -> bool:
    return value.q is None and value.dtype == np.dtype(np.float32)


def some(*values: Value) -> bool:
    return all(0 not in v.bound for v in values)
