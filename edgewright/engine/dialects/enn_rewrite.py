"""What ENN's translation is written with: images channels-last or as planes, real numbers in half precision, and
integers of 16 bits that are computed as real numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.rewrite import GraphRewrite, RuleTable
from edgewright.ir.enn.numerics import byte, constant
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value

TO_NHWC = (0, 2, 3, 1)  # from planes
TO_NCHW = (0, 3, 1, 2)  # and back: where each of the planes' dimensions lies among those of pixels
UNLIMITED = {"minimum": float("-inf"), "maximum": float("inf")}  # CLIP that only stores integers otherwise
_F32 = np.dtype(np.float32)


class EnnRewrite(GraphRewrite):
    """``pixels``: what holds an image channels-last, by the old value."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pixels: dict[Value, Value] = {}
        self.halves: dict[Value, Value] = {}  # what is rounded to half precision already, by what it is made of
        self.here = set(graph.inputs)  # values that are there as the graph has them

    # -------------------------------------------------------------------------------------------------- operands

    def keep(self, op: Op) -> None:
        for value in op.inputs():
            self.planes(value)
        super().keep(op)
        self.here |= set(op.outputs)

    def planes(self, value: Value) -> Value:
        """A value as the graph has it."""
        if value not in self.here and not value.constant:
            self._turn(self.pixels[value], value, TO_NCHW)
            self.here.add(value)
        return value

    def image(self, value: Value) -> Value:
        """A value of four dimensions channels-last."""
        if value.constant:
            return as_nhwc(value)
        if value not in self.pixels:
            self.pixels[value] = as_nhwc(value)
            self._turn(value, self.pixels[value], TO_NHWC)
        return self.pixels[value]

    def _turn(self, x: Value, out: Value, dims: tuple[int, ...]) -> None:
        """What has one pixel, or one plane, lies in memory as it did."""
        wide = x.bound[1] * x.bound[2] if dims == TO_NCHW else x.bound[2] * x.bound[3]
        args: dict[str, Any] = {"dims": list(dims)}
        alone = wide == 1 or out.bound[3 if dims == TO_NHWC else 1] == 1
        if alone:
            args = {"size": list(out.bound)}
        self.ops.append(Op("view" if alone else "permute", {"self": x, **args}, [out]))
        if x in self.halves and self.halves[x] is x:
            self.halves[out] = out

    def either(self, value: Value, image: bool) -> Value:
        return self.image(value) if image else self.planes(value)

    def reals(self, op: Op, value: Value, image: bool) -> Value:
        """A value as the real numbers that operators read: in half precision, or what integers stand for."""
        here = self.either(value, image)
        if here.data is not None:
            return replace(here, dtype=_F32, q=None, data=constant(here))
        if value.q is None:
            return self.half(op, here)
        out = replace(here, name=f"{here.name}_real", dtype=_F32, q=None)
        self.emit("convert" if byte(value) else f"{PREFIX}DEQUANTIZE", op, out, **_given(value, here))
        return out

    def half(self, op: Op, x: Value) -> Value:
        """Real numbers in half precision."""
        if x not in self.halves:
            out = replace(x, name=f"{x.name}_rounded")
            self.emit("round_to_half", op, out, self=x)
            self.halves[x] = self.halves[out] = out
        return self.halves[x]

    def any_pixels(self, values: list[Value]) -> bool:
        """Whether values of four dimensions are better taken channels-last: one is there only so."""
        return any(v in self.pixels and v not in self.here and not v.constant for v in values)

    # --------------------------------------------------------------------------------------------------- results

    def target(self, out: Value, image: bool) -> Value:
        """What is to hold a result, which is there from now on."""
        if image:
            self.pixels[out] = as_nhwc(out)
            return self.pixels[out]
        self.here.add(out)
        return out

    def flat(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """An operator on values as the graph has them."""
        self.emit(kind, op, self.target(out, False), **args)

    def made(self, kind: str, op: Op, out: Value, /, **args: Any) -> None:
        """An operator that makes an image."""
        self.emit(kind, op, self.target(out, True), **args)

    def computed(self, kind: str, op: Op, out: Value, image: bool, /, **args: Any) -> None:
        """An operator on real numbers, and its result as the graph stores it."""
        last = self.target(out, image)
        whole = replace(last, name=f"{last.name}_single", dtype=_F32, q=None)
        self.emit(kind, op, whole, **args)
        self.store(op, whole, last)

    def store(self, op: Op, whole: Value, last: Value) -> None:
        """Real numbers in single precision, as a value stores them."""
        if last.q is None:
            self.emit("round_to_half", op, last, self=whole)
            self.halves[last] = last
        else:
            self.emit("convert" if byte(last) else f"{PREFIX}QUANTIZE", op, last, **_given(last, whole))

    def same(self, last: Value) -> None:
        """A result that is made of numbers in half precision and needs no rounding."""
        self.halves[last] = last


rule: RuleTable[EnnRewrite] = RuleTable(PREFIX)


def _given(stored: Value, x: Value) -> dict[str, Any]:
    return {"self": x} if byte(stored) else {"inputs": [x]}


def as_nhwc(value: Value) -> Value:
    shape = tuple(value.bound[d] for d in TO_NHWC)
    data = None if value.data is None else np.ascontiguousarray(value.data.transpose(TO_NHWC))
    return replace(value, name=f"{value.name}_pixels", shape=shape, dim_order=(0, 1, 2, 3), data=data)


def is_float32(value: Value) -> bool:
    return value.q is None and value.dtype == _F32


def is_int16(value: Value) -> bool:
    """Integers of 16 bits with one scale."""
    q = value.q
    return q is not None and q.axis is None and q.dtype == np.dtype(np.int16) and value.dtype == q.dtype


def widen_to_int16(value: Value) -> Value:
    """Bytes as the same integers of 16 bits."""
    assert value.q is not None
    short = np.dtype(np.int16)
    return replace(value, name=f"{value.name}_wider", dtype=short, q=replace(value.q, dtype=short), data=None)


def non_empty(*values: Value) -> bool:
    return all(0 not in v.bound for v in values)


def same_kind(*values: Value) -> bool:
    """All real numbers, all bytes, or all words."""
    return any(all(kind(v) for v in values) for kind in (is_float32, byte, is_int16))


def hw_pair(op: Op, name: str) -> list[int]:
    return [int(op.args[f"{name}_{side}"]) for side in "hw"]


def padding_of(op: Op) -> list[int]:
    """Above, below, left, right."""
    top, left, bottom, right = (int(n) for n in op.args["explicit_padding"])
    return [top, bottom, left, right]
