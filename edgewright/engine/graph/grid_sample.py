"""Images and volumes sampled at the points of a grid, as operators of a device graph: arithmetic on the points, and
pixels at the places that it gives. Each operation is one of ``ir/aten/reference/grid_sample.py``, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value

_F32, _TRUTH, _PLACE = (np.dtype(t) for t in (np.float32, np.bool_, np.int64))
_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)

Make = Callable[[str, Sequence[int], dict[str, Any], Any], Value]  # an operator's kind, its result's shape, type


@dataclass(frozen=True)
class Sampling:
    """How points are taken: by numbers as torch has them."""

    mode: int
    padding: int
    align: bool


@dataclass(frozen=True)
class _Tap:
    """For each point an element along a dimension, its weight (None: 1) and whether there is such an element."""

    place: Value
    weight: Value | None
    inside: Value


def lower_grid_sample(
    make: Make, pixels: Value, points: Value, batch: int, sizes: Sequence[int], how: Sampling
) -> Value:
    """``pixels`` are ``[batch by all sizes, channels]``, ``points`` ``[rows, dimensions]``, the fastest one first; it
    gives ``[rows, channels]``. Places are made here, and so are inside."""
    rows = points.bound[0]
    grid, sides = _Grid(make, rows), []
    for i, size in enumerate(sizes):
        column = len(sizes) - 1 - i
        at = make("slice", (rows, 1), {"self": points, "start": [0, column], "length": [rows, 1]}, _F32)
        sides.append(grid.taps(at, size, how))
    offsets = np.repeat(np.arange(batch, dtype=np.int64) * int(np.prod(sizes)), rows // batch)[:, None]
    total: Value | None = None
    for taps in product(*sides):
        part = grid.part(pixels, taps, sizes, make_constant(offsets))
        total = part if total is None else make("add", part.bound, {"self": total, "other": part}, _F32)
    assert total is not None
    return total


class _Grid:
    """Arithmetic on the points of a grid: values of one shape, and numbers."""

    def __init__(self, make: Make, rows: int) -> None:
        self.make, self.shape = make, (rows, 1)

    def do(self, kind: str, a: Value, b: Any = None, dtype: Any = _F32) -> Value:
        args = {"self": a}
        if b is not None:
            args["other"] = b if isinstance(b, Value) else make_constant(np.asarray(b, a.dtype))
        return self.make(kind, self.shape, args, dtype)

    def choose(self, condition: Value, yes: Any, no: Any) -> Value:
        held = [v if isinstance(v, Value) else make_constant(np.asarray(v, np.float32)) for v in (yes, no)]
        return self.make("where", self.shape, {"condition": condition, "self": held[0], "other": held[1]}, _F32)

    def limited(self, x: Value, low: float, high: float) -> Value:
        return self.do("minimum", self.do("maximum", x, low), high)

    # ------------------------------------------------------------------------------------------------------- places

    def taps(self, points: Value, size: int, how: Sampling) -> list[_Tap]:
        """Elements along one dimension. Cubic taps are placed one by one."""
        at = self._pixels(points, size, how.align)
        found: list[tuple[Value, Value | None]]
        if how.mode == _CUBIC:
            found = [(self._placed(t, size, how), w) for t, w in self._cubic(at)]
        else:
            at = self._placed(at, size, how)
            found = [(self.do("round", at), None)] if how.mode == _NEAREST else self._linear(at)
        return [self._tap(place, weight, size) for place, weight in found]

    def _tap(self, at: Value, weight: Value | None, size: int) -> _Tap:
        inside = self.do("logical_and", self.do("ge", at, 0, _TRUTH), self.do("le", at, size - 1, _TRUTH), _TRUTH)
        there = self.limited(self.choose(inside, at, 0), 0, size - 1)
        return _Tap(self.do("cast", there, None, _PLACE), weight, inside)

    def _pixels(self, points: Value, size: int, align: bool) -> Value:
        moved = self.do("add", points, 1)
        if align:
            return self.do("mul", self.do("div", moved, 2), size - 1)
        return self.do("div", self.do("sub", self.do("mul", moved, size), 1), 2)

    def _placed(self, at: Value, size: int, how: Sampling) -> Value:
        """What a position outside the image stands for."""
        if how.padding == _ZEROS:
            return at
        if how.padding == _REFLECTION:
            low, span = (0.0, size - 1) if how.align else (-0.5, size)
            if span == 0:
                return self.do("mul", at, 0)
            distance = self.do("abs", self.do("sub", at, low))
            rest, flips = self.do("fmod", distance, span), self.do("floor", self.do("div", distance, span))
            odd = self.do("ne", self.do("fmod", flips, 2), 0, _TRUTH)
            at = self.choose(odd, self.do("sub", self.do("neg", rest), -(span + low)), self.do("add", rest, low))
        known = self.choose(self.do("isnan", at, None, _TRUTH), 0, at)
        return self.limited(known, 0, size - 1)

    def _linear(self, at: Value) -> list[tuple[Value, Value | None]]:
        lower = self.do("floor", at)
        part = self.do("sub", at, lower)
        return [(lower, self.do("sub", self.do("neg", part), -1)), (self.do("add", lower, 1), part)]

    def _cubic(self, at: Value) -> list[tuple[Value, Value]]:
        lower = self.do("floor", at)
        part = self.do("sub", at, lower)
        apart = {tap: self.do("abs", self.do("sub", part, tap)) for tap in range(-1, 3)}
        return [(self.do("add", lower, tap), self._weight(d)) for tap, d in apart.items()]

    def _weight(self, d: Value) -> Value:
        near = self.do("sub", self.do("mul", d, 1.25), 2.25)
        near = self.do("add", self.do("mul", self.do("mul", near, d), d), 1)
        far = self.do("add", self.do("mul", d, -0.75), 3.75)
        far = self.do("sub", self.do("mul", far, d), 6)
        far = self.do("add", self.do("mul", far, d), 3)
        return self.choose(self.do("le", d, 1, _TRUTH), near, far)

    # --------------------------------------------------------------------------------------------------------- sums

    def part(self, pixels: Value, taps: Sequence[_Tap], sizes: Sequence[int], offsets: Value) -> Value:
        """The pixels of one tap of each dimension, by their weights; 0 where there is none."""
        known, place, weight = taps[-1].inside, taps[0].place, taps[-1].weight
        for tap in taps[-2::-1]:
            known = self.do("logical_and", tap.inside, known, _TRUTH)
            weight = None if weight is None or tap.weight is None else self.do("mul", tap.weight, weight)
        for tap, size in zip(taps[1:], sizes[1:], strict=True):
            place = self.do("add", self.do("mul", place, size, _PLACE), tap.place, _PLACE)
        place = self.do("add", place, offsets, _PLACE)
        rows, shape = self.shape[:1], (self.shape[0], pixels.bound[1])
        flat = self.make("view", rows, {"self": place, "size": list(rows)}, _PLACE)
        found = self.make("index", shape, {"self": pixels, "indices": [flat]}, _F32)
        if weight is None:
            nothing = self.do("logical_not", known, None, _TRUTH)
        else:
            found = self.make("mul", shape, {"self": found, "other": weight}, _F32)
            nothing = self.do("eq", self.choose(known, weight, 0), 0, _TRUTH)
        none = {"condition": nothing, "self": make_constant(np.asarray(0, np.float32)), "other": found}
        return self.make("where", shape, none, _F32)


def make_constant(data: Array) -> Value:
    return Value("number", data.dtype, data.shape, tuple(range(data.ndim)), data)
