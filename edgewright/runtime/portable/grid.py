"""Images sampled at the points of a grid, as operators of a device graph: arithmetic on the points, and pixels at the
places that it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.portable.maker import Maker, new
from edgewright.runtime.portable.table import Args, taken
from edgewright.runtime.tensor import TensorSlot

_F32, _TRUTH = np.dtype(np.float32), np.dtype(np.bool_)


class _Grid:
    """Arithmetic on the points of a grid: values of one shape, and numbers."""

    def __init__(self, m: Maker, shape: tuple[int, ...]) -> None:
        self.m, self.shape = m, shape

    def do(self, kind: str, a: Value, b: Any = None, dtype: Any = _F32) -> Value:
        args = {"self": a}
        if b is not None:
            args["other"] = b if isinstance(b, Value) else new((), np.asarray(b, a.dtype))
        return self.m.between(kind, self.shape, args, dtype)

    def choose(self, condition: Value, yes: Any, no: Any) -> Value:
        held = [v if isinstance(v, Value) else new((), np.asarray(v, np.float32)) for v in (yes, no)]
        args = {"condition": condition, "self": held[0], "other": held[1]}
        return self.m.between("where", self.shape, args, held[0].dtype)

    def limited(self, x: Value, low: float, high: float) -> Value:
        return self.do("minimum", self.do("maximum", x, low), high)

    def pixels(self, points: Value, size: int, align: bool) -> Value:
        moved = self.do("add", points, 1)
        if align:
            return self.do("mul", self.do("div", moved, 2), size - 1)
        return self.do("div", self.do("sub", self.do("mul", moved, size), 1), 2)

    def placed(self, at: Value, size: int, mode: int, align: bool) -> Value:
        """What a position outside the image stands for."""
        if mode == 0:
            return at
        if mode == 2:
            low, span = (0.0, size - 1) if align else (-0.5, size)
            if span == 0:
                return self.do("mul", at, 0)
            distance = self.do("abs", self.do("sub", at, low))
            rest, flips = self.do("fmod", distance, span), self.do("floor", self.do("div", distance, span))
            odd = self.do("ne", self.do("fmod", flips, 2), 0, _TRUTH)
            at = self.choose(odd, self.do("sub", self.do("neg", rest), -(span + low)), self.do("add", rest, low))
        known = self.choose(self.do("isnan", at, None, _TRUTH), 0, at)
        return self.limited(known, 0, size - 1)

    def taps(self, at: Value, mode: int) -> list[tuple[Value, Value | None]]:
        if mode == 1:
            return [(self.do("round", at), None)]
        lower = self.do("floor", at)
        part = self.do("sub", at, lower)
        if mode == 0:
            return [(lower, self.do("sub", self.do("neg", part), -1)), (self.do("add", lower, 1), part)]
        apart = {tap: self.do("abs", self.do("sub", part, tap)) for tap in range(-1, 3)}
        return [(self.do("add", lower, tap), self.cubic(d)) for tap, d in apart.items()]

    def cubic(self, d: Value) -> Value:
        near = self.do("sub", self.do("mul", d, 1.25), 2.25)
        near = self.do("add", self.do("mul", self.do("mul", near, d), d), 1)
        far = self.do("add", self.do("mul", d, -0.75), 3.75)
        far = self.do("sub", self.do("mul", far, d), 6)
        far = self.do("add", self.do("mul", far, d), 3)
        return self.choose(self.do("le", d, 1, _TRUTH), near, far)

    def inside(self, at: Value, size: int) -> Value:
        return self.do("logical_and", self.do("ge", at, 0, _TRUTH), self.do("le", at, size - 1, _TRUTH), _TRUTH)


@taken("aten::grid_sampler_2d.out")
def _sampled(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Pixels at each point's neighbours, with their weights. Places are made here, and so are inside."""
    x, grid, out = a["input"], a["grid"], outs[0]
    if not m.usable(x, grid, out) or len(x.bound) != 4 or len(grid.bound) != 4 or m.constant(x) is not None:
        return False
    batch, channels, high, wide = x.bound
    if grid.bound[0] != batch or grid.bound[3] != 2 or out.bound != (batch, channels, *grid.bound[1:3]):
        return False
    rows = math.prod(grid.bound[:3])
    points = m.between("view", (rows, 2), {"self": m.planes(grid), "size": [rows, 2]})
    g, mode, padding, align = _Grid(m, (rows, 1)), a["interpolation_mode"], a["padding_mode"], a["align_corners"]
    sides = []
    for i, size in ((1, high), (0, wide)):
        column = m.between("slice", (rows, 1), {"self": points, "start": [0, i], "length": [rows, 1]})
        at = g.pixels(column, size, align)
        at = at if mode == 2 else g.placed(at, size, padding, align)
        taps = [(g.placed(t, size, padding, align) if mode == 2 else t, w) for t, w in g.taps(at, mode)]
        sides.append((size, taps))
    size = [batch * high * wide, channels]
    pixels = m.between("view", size, {"self": m.pixels(x), "size": size})
    offsets = np.repeat(np.arange(batch, dtype=np.int64) * high * wide, rows // batch)[:, None]
    total = _total(m, g, sides, pixels, new(offsets.shape, offsets))
    shape = [batch, *grid.bound[1:3], channels]
    image = m.between("view", shape, {"self": total, "size": shape})
    m.bind(out, image, pixels=True)
    m.macs += math.prod(out.bound) * 16
    return True


def _total(m: Maker, g: _Grid, sides: Sequence[Any], pixels: Value, offsets: Value) -> Value:
    (high, rows), (wide, columns) = sides
    whole, total = np.dtype(np.int64), None
    for y, first in rows:
        for x, second in columns:
            known = g.do("logical_and", g.inside(y, high), g.inside(x, wide), _TRUTH)
            at = [g.do("cast", g.limited(g.choose(known, v, 0), 0, size - 1), None, whole) for v, size in
                  ((y, high), (x, wide))]  # fmt: skip
            place = g.do("add", g.do("add", g.do("mul", at[0], wide, whole), at[1], whole), offsets, whole)
            shape = (g.shape[0], pixels.bound[1])
            flat = m.between("view", (g.shape[0],), {"self": place, "size": [g.shape[0]]}, whole)
            found = m.between("index", shape, {"self": pixels, "indices": [flat]})
            if first is not None:
                weight = g.do("mul", first, second)
                scaled = m.between("mul", shape, {"self": found, "other": weight})
                nothing = g.do("eq", g.choose(known, weight, 0), 0, _TRUTH)
            else:
                scaled, nothing = found, g.do("logical_not", known, None, _TRUTH)
            none = {"condition": nothing, "self": new((), np.asarray(0, np.float32)), "other": scaled}
            kept = m.between("where", shape, none)
            total = kept if total is None else m.between("add", shape, {"self": total, "other": kept})
    assert total is not None
    return total
