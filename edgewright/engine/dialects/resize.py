"""Vendors' resizing between pixels: the four that each result is a sum of, their weights, and what becomes of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics
from edgewright.ir.tflite.conv import taps
from edgewright.ir.tflite.xnnpack_rounding import between as between_pixels
from edgewright.ir.tosa.conv_pool import between

ResizeEpilogue = Callable[[RangedIntBuilder, RangedInt], RangedInt]


@dataclass(frozen=True)
class ResizeAxis:
    """For each result along a dimension the places of two elements, and their weights: ``[2, results]``."""

    places: Array
    weights: Array

    @classmethod
    def of(cls, places: Array, weights: Array) -> ResizeAxis:
        """Of two that are one, the first has all the weight."""
        once = np.stack((weights.sum(axis=0), np.zeros_like(weights[1])))
        return cls(places, np.where(places[0] == places[1], once, weights))

    @property
    def most(self) -> int:
        """The largest sum of both weights' sizes."""
        return int(np.abs(self.weights).sum(axis=0).max(initial=0))


@dataclass(frozen=True)
class IntResizeSpec:
    data: Value
    axes: tuple[ResizeAxis, ResizeAxis]  # rows, columns
    finish: ResizeEpilogue
    divisor: int = 1  # of real numbers


def int_resize_spec(op: Op, numerics: Numerics) -> IntResizeSpec:
    """Of an operator that resizes; raises if it is none, or sizes are none that it can have."""
    out = op.outputs[0]
    assert out is not None
    if op.kind not in _KINDS:
        raise IntRangeError("does not resize")
    made = _KINDS[op.kind](op, out, numerics)
    for axis, have, wanted in zip(made.axes, made.data.bound[1:3], out.bound[1:3], strict=True):
        if axis.places.shape != (2, wanted) or int(axis.places.min()) < 0 or int(axis.places.max()) >= have:
            raise IntRangeError("results are not as many")
    if (made.data.bound[0], made.data.bound[3]) != (out.bound[0], out.bound[3]):
        raise IntRangeError("other images than there are")
    return made


def _axis(low: Array, high: Array, part: Array, whole: int) -> ResizeAxis:
    return ResizeAxis.of(np.stack((low, high)), np.stack((whole - part, part)))


def _images(*values: Value) -> None:
    if any(len(v.bound) != 4 or 0 in v.bound for v in values):
        raise IntRangeError("not images")


def _tosa(op: Op, out: Value, numerics: Numerics) -> IntResizeSpec:
    data, scale = op.args["input"], op.args["scale"]
    _images(data, out)
    if op.args["mode"] != "bilinear":
        raise IntRangeError("not between pixels")
    found = between(data.bound[1:3], scale, op.args["offset"], op.args["border"])
    rows, columns = (_axis(*pair, int(n)) for pair, n in zip(found, scale[::2], strict=True))
    return IntResizeSpec(data, (rows, columns), lambda i, x: x, int(scale[0]) * int(scale[2]))


def _tflite(op: Op, out: Value, numerics: Numerics) -> IntResizeSpec:
    data, aligned, half = op.args["inputs"][0], op.args["align_corners"], op.args["half_pixel_centers"]
    _images(data, out)
    sizes = list(zip(data.bound[1:3], out.bound[1:3], strict=True))
    if numerics.name == "xnnpack":
        rows, columns = (_axis(*between_pixels(have, wanted, bool(aligned)), 2048) for have, wanted in sizes)
        return IntResizeSpec(data, (rows, columns), _halves_up)
    both = [taps(have, wanted, aligned, half) for have, wanted in sizes]
    rows, columns = (ResizeAxis.of(*(np.stack([tap[n] for tap in pair]) for n in (0, 1))) for pair in both)
    return IntResizeSpec(data, (rows, columns), _halves_away)


def _halves_up(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    return i.right(i.plus(total, 1 << 21), 22)


def _halves_away(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    """Over 2**20."""
    sign = i.compare("slt", total, i.constant(0))
    moved = i.add(total, i.sub(i.constant(1 << 19), sign))
    return i.right(moved, 20)


_KINDS: dict[str, Callable[[Op, Value, Numerics], IntResizeSpec]] = {
    "tosa.resize": _tosa,
    "tflite.RESIZE_BILINEAR": _tflite,
}


def interpolate(f: Function, four: Sequence[Reg], along: Sequence[Reg], down: Sequence[Reg]) -> Reg:
    """The sum of upper and lower, left and right pixels by their weights, in the type that all have."""
    real = "double" in four[0].type
    times, plus = ("fmul", "fadd") if real else ("mul", "add")

    def both(a: Reg, b: Reg, weights: Sequence[Reg]) -> Reg:
        first, second = (f.splat(w, lane_count(a.type)) for w in weights)
        return f.op(plus, f.op(times, a, first), f.op(times, b, second))

    return both(both(four[0], four[1], along), both(four[2], four[3], along), down)


def divide_to_float(f: Function, total: Reg, divisor: int) -> Reg:
    """In single precision."""
    whole = f.op("fdiv", total, const(divisor, total.type))
    return f.cast("fptrunc", whole, vec(lane_count(whole.type), "float"))
