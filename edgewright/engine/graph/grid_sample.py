"""Lowering of grid_sample (2-D and 3-D) to core operators: coordinate arithmetic, then a gather and a weighted sum per
tap. The operations and their order are those of ``ir/aten/reference/resample.py``, so results match bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Value

_F32, _BOOL, _INDEX = (np.dtype(t) for t in (np.float32, np.bool_, np.int64))
_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)

AddOp = Callable[[str, Sequence[int], dict[str, Any], Any], Value]  # kind, result shape, arguments, result dtype


@dataclass(frozen=True)
class Sampling:
    """Interpolation and padding modes, numbered as in ATen."""

    mode: int
    padding: int
    align: bool


@dataclass(frozen=True)
class _Tap:
    """Per point, one index along a dimension, its weight (None: 1), and whether the index is in range."""

    index: Value
    weight: Value | None
    inside: Value


def lower_grid_sample(
    add_op: AddOp, pixels: Value, points: Value, batch: int, sizes: Sequence[int], sampling: Sampling
) -> Value:
    """``pixels``: ``[batch * prod(sizes), channels]``; ``points``: ``[rows, dimensions]``, innermost dimension first.
    Returns ``[rows, channels]``. Indices are clamped here, so the gather needs no bounds check."""
    rows = points.bound[0]
    grid, taps_per_dim = _Grid(add_op, rows), []
    for i, size in enumerate(sizes):
        column = len(sizes) - 1 - i
        at = add_op("core.slice", (rows, 1), {"self": points, "start": [0, column], "length": [rows, 1]}, _F32)
        taps_per_dim.append(grid.taps(at, size, sampling))
    offsets = np.repeat(np.arange(batch, dtype=np.int64) * int(np.prod(sizes)), rows // batch)[:, None]
    total: Value | None = None
    for taps in product(*taps_per_dim):
        part = grid.weighted_tap(pixels, taps, sizes, make_constant(offsets))
        total = part if total is None else add_op("core.add", part.bound, {"self": total, "other": part}, _F32)
    assert total is not None
    return total


class _Grid:
    """Builds coordinate arithmetic on ``[rows, 1]`` values and scalars."""

    def __init__(self, add_op: AddOp, rows: int) -> None:
        self.add_op, self.shape = add_op, (rows, 1)

    def do(self, kind: str, a: Value, b: Any = None, dtype: Any = _F32) -> Value:
        args = {"self": a}
        if b is not None:
            args["other"] = b if isinstance(b, Value) else make_constant(np.asarray(b, a.dtype))
        return self.add_op(kind, self.shape, args, dtype)

    def select(self, condition: Value, on_true: Any, on_false: Any) -> Value:
        branches = [
            v if isinstance(v, Value) else make_constant(np.asarray(v, np.float32)) for v in (on_true, on_false)
        ]
        return self.add_op(
            "core.where", self.shape, {"condition": condition, "self": branches[0], "other": branches[1]}, _F32
        )

    def clamp(self, x: Value, low: float, high: float) -> Value:
        return self.do("core.minimum", self.do("core.maximum", x, low), high)

    # ------------------------------------------------------------------------------------------------------ indices

    def taps(self, points: Value, size: int, sampling: Sampling) -> list[_Tap]:
        """The taps along one dimension. Cubic taps are each padded separately."""
        at = self._unnormalize(points, size, sampling.align)
        index_weights: list[tuple[Value, Value | None]]
        if sampling.mode == _CUBIC:
            index_weights = [(self._pad(t, size, sampling), w) for t, w in self._cubic(at)]
        else:
            at = self._pad(at, size, sampling)
            index_weights = [(self.do("core.round", at), None)] if sampling.mode == _NEAREST else self._linear(at)
        return [self._tap(index, weight, size) for index, weight in index_weights]

    def _tap(self, at: Value, weight: Value | None, size: int) -> _Tap:
        inside = self.do(
            "core.logical_and", self.do("core.ge", at, 0, _BOOL), self.do("core.le", at, size - 1, _BOOL), _BOOL
        )
        clamped = self.clamp(self.select(inside, at, 0), 0, size - 1)
        return _Tap(self.do("core.cast", clamped, None, _INDEX), weight, inside)

    def _unnormalize(self, points: Value, size: int, align: bool) -> Value:
        shifted = self.do("core.add", points, 1)
        if align:
            return self.do("core.mul", self.do("core.div", shifted, 2), size - 1)
        return self.do("core.div", self.do("core.sub", self.do("core.mul", shifted, size), 1), 2)

    def _pad(self, at: Value, size: int, sampling: Sampling) -> Value:
        """Apply the padding mode to positions outside the image."""
        if sampling.padding == _ZEROS:
            return at
        if sampling.padding == _REFLECTION:
            low, span = (0.0, size - 1) if sampling.align else (-0.5, size)
            if span == 0:
                return self.do("core.mul", at, 0)
            distance = self.do("core.abs", self.do("core.sub", at, low))
            rest, flips = (
                self.do("core.fmod", distance, span),
                self.do("core.floor", self.do("core.div", distance, span)),
            )
            odd = self.do("core.ne", self.do("core.fmod", flips, 2), 0, _BOOL)
            at = self.select(
                odd, self.do("core.sub", self.do("core.neg", rest), -(span + low)), self.do("core.add", rest, low)
            )
        position = self.select(self.do("core.isnan", at, None, _BOOL), 0, at)
        return self.clamp(position, 0, size - 1)

    def _linear(self, at: Value) -> list[tuple[Value, Value | None]]:
        lower = self.do("core.floor", at)
        part = self.do("core.sub", at, lower)
        return [(lower, self.do("core.sub", self.do("core.neg", part), -1)), (self.do("core.add", lower, 1), part)]

    def _cubic(self, at: Value) -> list[tuple[Value, Value]]:
        lower = self.do("core.floor", at)
        part = self.do("core.sub", at, lower)
        distances = {tap: self.do("core.abs", self.do("core.sub", part, tap)) for tap in range(-1, 3)}
        return [(self.do("core.add", lower, tap), self._cubic_weight(d)) for tap, d in distances.items()]

    def _cubic_weight(self, d: Value) -> Value:
        inner = self.do("core.sub", self.do("core.mul", d, 1.25), 2.25)
        inner = self.do("core.add", self.do("core.mul", self.do("core.mul", inner, d), d), 1)
        outer = self.do("core.add", self.do("core.mul", d, -0.75), 3.75)
        outer = self.do("core.sub", self.do("core.mul", outer, d), 6)
        outer = self.do("core.add", self.do("core.mul", outer, d), 3)
        return self.select(self.do("core.le", d, 1, _BOOL), inner, outer)

    # --------------------------------------------------------------------------------------------------------- sums

    def weighted_tap(self, pixels: Value, taps: Sequence[_Tap], sizes: Sequence[int], offsets: Value) -> Value:
        """The gathered pixels of one tap per dimension, weighted; 0 where a tap is out of range."""
        in_range, index, weight = taps[-1].inside, taps[0].index, taps[-1].weight
        for tap in taps[-2::-1]:
            in_range = self.do("core.logical_and", tap.inside, in_range, _BOOL)
            weight = None if weight is None or tap.weight is None else self.do("core.mul", tap.weight, weight)
        for tap, size in zip(taps[1:], sizes[1:], strict=True):
            index = self.do("core.add", self.do("core.mul", index, size, _INDEX), tap.index, _INDEX)
        index = self.do("core.add", index, offsets, _INDEX)
        rows, shape = self.shape[:1], (self.shape[0], pixels.bound[1])
        flat = self.add_op("core.view", rows, {"self": index, "size": list(rows)}, _INDEX)
        gathered = self.add_op("core.index", shape, {"self": pixels, "indices": [flat]}, _F32)
        if weight is None:
            masked = self.do("core.logical_not", in_range, None, _BOOL)
        else:
            gathered = self.add_op("core.mul", shape, {"self": gathered, "other": weight}, _F32)
            masked = self.do("core.eq", self.select(in_range, weight, 0), 0, _BOOL)
        select_zero = {"condition": masked, "self": make_constant(np.asarray(0, np.float32)), "other": gathered}
        return self.add_op("core.where", shape, select_zero, _F32)


def make_constant(data: Array) -> Value:
    return Value("number", data.dtype, data.shape, tuple(range(data.ndim)), data)
