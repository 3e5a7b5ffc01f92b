"""Variances, mean squares and vector norms in int32. Sums are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import MAX_ERROR_STEPS
from edgewright.backends.ethos_u.lower import INT16, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.reduce import alias_reduced
from edgewright.backends.table import OK, Rule, reduced_dims
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import NHWC, identity

MAX_ELEMENTS = {1: 1 << 20, 2: 1 << 16}  # elements whose sum fits int32, by element size
_MAX_SQUARES = 1 << 15  # 8-bit squares whose sum fits int32; more drop their low bits
SQUARE_BITS = 29  # bits of a variance plus eps that RESCALE accepts


@dataclass(frozen=True)
class Moments:
    """Deviations from the mean (or from zero) and their mean square.

    ``deviation`` is in units of ``2**-bits`` steps, ``mean_square`` in units of ``1 / unit`` squared steps.
    """

    deviation: Value
    bits: int
    mean_square: Value
    unit: float
    headroom_shift: Value | None = None  # left shift applied to the deviations


def compute_moments(
    low: TosaLowering, x: Value, axes: Sequence[int], narrow: bool, subtract_mean: bool, eps: float
) -> Moments:
    """Moments of int32 ``x`` over axes. ``eps`` (in squared steps) will be added; ``narrow``: x has 8 bits."""
    count = math.prod(x.bound[a] for a in axes)
    max_square = 2.0**14 if subtract_mean else 2.0**16
    if not narrow:
        return _moments_int16(low, x, axes, count, subtract_mean, eps)
    bits = math.floor(SQUARE_BITS - math.log2(max_square + eps))
    dropped = max(0, math.ceil(math.log2(count / _MAX_SQUARES)))
    if not subtract_mean:
        total = fixed_point.reduce_sum(low, fixed_point.mul(low, x, x, shift=dropped), axes)
        return Moments(
            fixed_point.shift_left(low, x, 7), 7, low.rescale(total, INT32, 2.0 ** (bits + dropped) / count), 2.0**bits
        )
    # Squares are taken around the integer nearest to the mean, where they are exact; the residual is corrected after.
    mean = low.rescale(fixed_point.reduce_sum(low, x, axes), INT32, 2.0**15 / count)
    nearest = fixed_point.shift_right(low, mean, 15)
    residual = fixed_point.binary(low, "sub", mean, fixed_point.shift_left(low, nearest, 15))
    offset = fixed_point.binary(low, "sub", x, nearest)
    squares = fixed_point.reduce_sum(low, fixed_point.mul(low, offset, offset, shift=dropped), axes)
    total = low.rescale(squares, INT32, 2.0 ** (bits + dropped) / count)
    extra = (
        fixed_point.mul(low, residual, residual, shift=30 - bits)
        if bits >= 0
        else fixed_point.scalar_like(low, residual, 0)
    )
    deviation = fixed_point.binary(
        low, "sub", fixed_point.shift_left(low, offset, 7), fixed_point.shift_right(low, residual, 8)
    )
    return Moments(deviation, 7, fixed_point.binary(low, "sub", total, extra), 2.0**bits)


def _moments_int16(
    low: TosaLowering, x: Value, axes: Sequence[int], count: int, subtract_mean: bool, eps: float
) -> Moments:
    """16-bit inputs: shift deviations left into the headroom, then drop low bits of the squares so that sums fit."""
    deviation = fixed_point.shift_left(low, x, 4)
    residual = None
    if subtract_mean:
        mean = low.rescale(fixed_point.reduce_sum(low, x, axes), INT32, 2.0**13 / count)
        nearest = fixed_point.shift_right(low, mean, 9)
        residual = fixed_point.binary(
            low, "sub", mean, fixed_point.shift_left(low, nearest, 9)
        )  # in units of 2**-13 steps
        deviation = fixed_point.binary(low, "sub", deviation, nearest)
    # The unused high bits of 20, limited so that eps, which is shifted by twice as many, still fits.
    max_shift = min(16, max(0, math.floor(math.log2(2.0**30 / eps) / 2))) if eps else 16
    headroom_shift = fixed_point.binary(low, "minimum", _headroom(low, deviation, axes), max_shift)
    deviation = fixed_point.shift_left(low, deviation, headroom_shift)
    if residual is not None:
        deviation = fixed_point.binary(
            low,
            "sub",
            deviation,
            fixed_point.shift_right(low, fixed_point.shift_left(low, residual, headroom_shift), 9),
        )
    dropped = _dropped_bits(count, eps * 4.0**max_shift)
    total = fixed_point.reduce_sum(low, fixed_point.mul(low, deviation, deviation, shift=dropped), axes)
    return Moments(deviation, 4, total, _unit_int16(count, eps * 4.0**max_shift), headroom_shift)


def _dropped_bits(count: int, eps: float) -> int:
    """Low bits to drop from 20-bit squares so that ``count`` of them, plus eps, fit."""
    return max(0, math.ceil(math.log2(count * (2.0**30 + eps) * 2.0**8) - SQUARE_BITS))


def _unit_int16(count: int, eps: float) -> float:
    return count * 2.0 ** (8 - _dropped_bits(count, eps))


def _headroom(low: TosaLowering, x: Value, axes: Sequence[int]) -> Value:
    """Number of bits by which ``x`` (at most 20 bits) can be shifted left."""
    size = low.rescale(low.node("abs", x.bound, INT32, input=x), INT16, 2.0**-5)
    for axis in axes:
        shape = [1 if a == axis else s for a, s in enumerate(size.bound)]
        size = low.node("reduce_max", shape, INT16, input=size, axis=axis)
    largest = fixed_point.binary(low, "maximum", low.rescale(size, INT32, 1.0), 1)
    # Below 2**15 and rounded: one bit less than the leading zeros.
    zeros = low.node("clz", largest.bound, INT32, input=largest)
    return fixed_point.binary(low, "maximum", fixed_point.binary(low, "sub", zeros, 18), 0)


def variance(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    dims, (order, tensor, axes) = reduced_dims(op), _reduction_input(low, op)
    count = math.prod(x.bound[d] for d in dims)
    narrow = x.q.dtype.itemsize == 1
    moments = compute_moments(low, low.rescale(tensor, INT32, 1.0, zero_of(x)), axes, narrow, True, 0.0)
    factor = scale_of(x) ** 2 / moments.unit * count / (count - _correction(op))
    mean_square = (
        moments.mean_square
        if moments.headroom_shift is None
        else fixed_point.shift_right(low, moments.mean_square, fixed_point.shift_left(low, moments.headroom_shift, 1))
    )
    alias_reduced(low, op, order, dims, low.requantize(mean_square, out, factor, op.args.get("limits")))


def _correction(op: Op) -> float:
    correction = op.args.get("correction")
    return float(op.args.get("unbiased", True)) if correction is None else float(correction)


def _reduction_input(low: TosaLowering, op: Op) -> tuple[tuple[int, ...], Value, list[int]]:
    x = op.args["self"]
    order = NHWC if len(x.shape) == 4 and NHWC in low.orders(x) else identity(len(x.shape))
    return order, low.get(x, order), [order.index(d) for d in reduced_dims(op)]


def vector_norm(low: TosaLowering, op: Op) -> None:
    """Order 2: root of the sum of squares. Order 1: sum of absolute values."""
    x, out = op.args["self"], result(op)
    dims, (order, stored, axes) = reduced_dims(op), _reduction_input(low, op)
    wide = low.rescale(stored, INT32, 1.0, zero_of(x))
    if op.args.get("ord", 2) == 1:
        acc = fixed_point.reduce_sum(low, low.node("abs", wide.bound, INT32, input=wide), axes)
        alias_reduced(low, op, order, dims, low.requantize(acc, out, scale_of(x), op.args.get("limits")))
        return
    count = math.prod(x.bound[d] for d in dims)
    dropped = max(0, math.ceil(math.log2(count / (_MAX_SQUARES if x.q.dtype.itemsize == 1 else 1))))
    total = fixed_point.reduce_sum(low, fixed_point.mul(low, wide, wide, shift=dropped), axes)
    root, shift = fixed_point.sqrt(low, total)
    length = fixed_point.shift_right(low, root, shift)
    # ``sqrt`` is undefined for zero: bound the root by a multiple of the sum itself.
    length = fixed_point.binary(
        low, "minimum", length, fixed_point.shift_left(low, fixed_point.binary(low, "minimum", total, 2**20), 7)
    )
    alias_reduced(
        low,
        op,
        order,
        dims,
        low.requantize(length, out, scale_of(x) * 2.0 ** (dropped / 2 - 6.5), op.args.get("limits")),
    )


def _element_count(op: Op) -> int:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    if op.kind in ("layer_norm", "rms_norm"):
        return math.prod(op.args["normalized_shape"])
    if op.kind in ("var", "linalg_vector_norm"):
        return math.prod(x.bound[d] for d in reduced_dims(op))
    group: int = op.args.get("num_groups", op.args.get("group", x.bound[1]))
    return math.prod(x.bound[1:]) // group


def _check_element_count(op: Op, target: Any) -> object:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    width = x.q.dtype.itemsize if x.q is not None else 2
    return count if (count := _element_count(op)) > MAX_ELEMENTS.get(width, 0) else OK


max_elements = Rule(
    f"at most {MAX_ELEMENTS[1]} elements may be summed, or {MAX_ELEMENTS[2]} for 16 bits", _check_element_count
)
norm_order = Rule(
    "the norm must be of order 1 or 2", lambda op, _: OK if op.args.get("ord", 2) in (1, 2) else op.args["ord"]
)
more_than_correction = Rule(
    "there must be more elements than the correction",
    lambda op, _: OK if _element_count(op) > _correction(op) >= 0 else f"{_element_count(op)} and {_correction(op)}",
)


def _check_precision(op: Op, target: Any) -> object:
    x, out, count = op.args["self"], result(op), _element_count(op)
    if x.q is None or out.q is None or x.q.dtype.itemsize == 1 or count <= _correction(op):
        return OK
    off = scale_of(x) ** 2 / _unit_int16(count, 0.0) * count / (count - _correction(op)) / 2 / scale_of(out)
    return OK if off <= MAX_ERROR_STEPS else f"{off:.0f} steps off at worst"


variance_precision = Rule(f"16-bit variances must be accurate to {MAX_ERROR_STEPS} steps", _check_precision)
