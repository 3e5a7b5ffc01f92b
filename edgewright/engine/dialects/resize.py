"""Vendors' bilinear resize: source indices and integer weights of the four neighbors, and the final rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.backends.ethos_u.dialect.conv_pool import source_positions
from edgewright.backends.nxp.dialect.conv import resize_taps
from edgewright.backends.nxp.dialect.xnnpack_rounding import bilinear_taps as between_pixels
from edgewright.engine.codegen.builder import Function, Reg, const, lane_count, vec
from edgewright.engine.codegen.ranged_int import IntRangeError, RangedInt, RangedIntBuilder
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics

ResizeEpilogue = Callable[[RangedIntBuilder, RangedInt], RangedInt]


@dataclass(frozen=True)
class ResizeAxis:
    """For each result along a dimension the indices of two elements and their weights, both ``[2, results]``."""

    indices: Array
    weights: Array

    @classmethod
    def of(cls, indices: Array, weights: Array) -> ResizeAxis:
        """Build an axis; if both indices are equal the first gets the total weight."""
        merged = np.stack((weights.sum(axis=0), np.zeros_like(weights[1])))
        return cls(indices, np.where(indices[0] == indices[1], merged, weights))

    @property
    def weight_bound(self) -> int:
        """The largest sum of absolute weights."""
        return int(np.abs(self.weights).sum(axis=0).max(initial=0))


@dataclass(frozen=True)
class IntResizeSpec:
    """A bilinear resize: operand, rows and columns, and the rounding of the weighted sum."""

    data: Value
    axes: tuple[ResizeAxis, ResizeAxis]  # rows, columns
    finish: ResizeEpilogue
    divisor: int = 1  # of float32 results


def int_resize_spec(op: Op, numerics: Numerics) -> IntResizeSpec:
    """The spec of a resize operator; raises if it is none or its sizes are inconsistent."""
    out = op.outputs[0]
    assert out is not None
    if op.kind not in _KINDS:
        raise IntRangeError("not a resize")
    spec = _KINDS[op.kind](op, out, numerics)
    for axis, in_size, out_size in zip(spec.axes, spec.data.bound[1:3], out.bound[1:3], strict=True):
        if axis.indices.shape != (2, out_size) or int(axis.indices.min()) < 0 or int(axis.indices.max()) >= in_size:
            raise IntRangeError("output shape mismatch")
    if (spec.data.bound[0], spec.data.bound[3]) != (out.bound[0], out.bound[3]):
        raise IntRangeError("batch or channels differ")
    return spec


def _axis(low: Array, high: Array, upper_weight: Array, total_weight: int) -> ResizeAxis:
    return ResizeAxis.of(np.stack((low, high)), np.stack((total_weight - upper_weight, upper_weight)))


def _require_images(*values: Value) -> None:
    if any(len(v.bound) != 4 or 0 in v.bound for v in values):
        raise IntRangeError("not images")


def _tosa(op: Op, out: Value, numerics: Numerics) -> IntResizeSpec:
    data, scale = op.args["input"], op.args["scale"]
    _require_images(data, out)
    if op.args["mode"] != "bilinear":
        raise IntRangeError("not bilinear")
    neighbors = source_positions(data.bound[1:3], scale, op.args["offset"], op.args["border"])
    rows, columns = (_axis(*pair, int(n)) for pair, n in zip(neighbors, scale[::2], strict=True))
    return IntResizeSpec(data, (rows, columns), lambda i, x: x, int(scale[0]) * int(scale[2]))


def _tflite(op: Op, out: Value, numerics: Numerics) -> IntResizeSpec:
    data, align_corners, half_pixel = op.args["inputs"][0], op.args["align_corners"], op.args["half_pixel_centers"]
    _require_images(data, out)
    sizes = list(zip(data.bound[1:3], out.bound[1:3], strict=True))
    if numerics.name == "xnnpack":
        rows, columns = (
            _axis(*between_pixels(in_size, out_size, bool(align_corners)), 2048) for in_size, out_size in sizes
        )
        return IntResizeSpec(data, (rows, columns), _round_half_up)
    axis_taps = [resize_taps(in_size, out_size, align_corners, half_pixel) for in_size, out_size in sizes]
    rows, columns = (ResizeAxis.of(*(np.stack([tap[n] for tap in pair]) for n in (0, 1))) for pair in axis_taps)
    return IntResizeSpec(data, (rows, columns), _round_half_away)


def _round_half_up(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    """XNNPACK: 22 fractional bits, round half up."""
    return i.shift_right(i.plus(total, 1 << 21), 22)


def _round_half_away(i: RangedIntBuilder, total: RangedInt) -> RangedInt:
    """TFLite: 20 fractional bits, round half away from zero."""
    sign = i.compare("slt", total, i.constant(0))
    rounded = i.add(total, i.sub(i.constant(1 << 19), sign))
    return i.shift_right(rounded, 20)


_KINDS: dict[str, Callable[[Op, Value, Numerics], IntResizeSpec]] = {
    "tosa.resize": _tosa,
    "tflite.RESIZE_BILINEAR": _tflite,
}


def interpolate(f: Function, corners: Sequence[Reg], column_weights: Sequence[Reg], row_weights: Sequence[Reg]) -> Reg:
    """The weighted sum of the four neighbors, in their common type."""
    is_float = "double" in corners[0].type
    times, plus = ("fmul", "fadd") if is_float else ("mul", "add")

    def lerp(a: Reg, b: Reg, weights: Sequence[Reg]) -> Reg:
        first, second = (f.splat(w, lane_count(a.type)) for w in weights)
        return f.op(plus, f.op(times, a, first), f.op(times, b, second))

    return lerp(lerp(corners[0], corners[1], column_weights), lerp(corners[2], corners[3], column_weights), row_weights)


def divide_to_float(f: Function, total: Reg, divisor: int) -> Reg:
    """Divide in float64 and round to float32."""
    quotient = f.op("fdiv", total, const(divisor, total.type))
    return f.cast("fptrunc", quotient, vec(lane_count(quotient.type), "float"))
