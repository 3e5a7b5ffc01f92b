"""Normalisations as one operator each, on 32-bit integers: no scale between their steps needs calibration.

Sums are exact; the square root's reciprocal is a table of the normalised sum (``fixed``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed
from edgewright.backends.ethos_u.lower import (
    FLOAT32,
    INT16,
    INT32,
    INT48,
    TosaLowering,
    result,
    scale_of,
    sizes,
    zero_of,
)
from edgewright.backends.ethos_u.reductions import settle
from edgewright.backends.ethos_u.tables import WORST, real
from edgewright.backends.table import OK, Rule, over
from edgewright.ir.graph import Array, Op, Value
from edgewright.passes.layout import NHWC, identity, last

LONGEST = {1: 1 << 20, 2: 1 << 16}  # elements that a sum has room for, by bytes: of 16 bits, each whole
_SQUARES = 1 << 15  # squares of 8-bit integers that a sum has room for; of more, without their last bits
_ROOM = 29  # bits of a variance with eps: RESCALE takes no more


@dataclass(frozen=True)
class Spread:
    """Distances from the mean (or from zero), in units of ``1 / 2**bits`` stored steps, and their mean square, in
    units of ``1 / unit`` squares of steps."""

    distance: Value
    bits: int
    square: Value
    unit: float
    up: Value | None = None  # bits by which all of it went to the left


def spread(low: TosaLowering, x: Value, axes: Sequence[int], narrow: bool, centred: bool, eps: float) -> Spread:
    """Of 32-bit ``x`` over axes; ``eps``, in squares of steps, will be added. ``narrow``: ``x`` has 8 bits."""
    count = math.prod(x.bound[a] for a in axes)
    most = 2.0**14 if centred else 2.0**16
    if not narrow:
        return _spread_16(low, x, axes, count, centred, eps)
    bits = math.floor(_ROOM - math.log2(most + eps))
    less = max(0, math.ceil(math.log2(count / _SQUARES)))
    if not centred:
        total = fixed.summed(low, fixed.mul(low, x, x, shift=less), axes)
        return Spread(fixed.left(low, x, 7), 7, low.rescale(total, INT32, 2.0 ** (bits + less) / count), 2.0**bits)
    # From the nearest integer to the mean first: its squares are exact. What is left of the mean comes off after.
    mean = low.rescale(fixed.summed(low, x, axes), INT32, 2.0**15 / count)
    nearest = fixed.right(low, mean, 15)
    rest = fixed.both(low, "sub", mean, fixed.left(low, nearest, 15))
    apart = fixed.both(low, "sub", x, nearest)
    squares = fixed.summed(low, fixed.mul(low, apart, apart, shift=less), axes)
    total = low.rescale(squares, INT32, 2.0 ** (bits + less) / count)
    extra = fixed.mul(low, rest, rest, shift=30 - bits) if bits >= 0 else fixed.full(low, rest, 0)
    distance = fixed.both(low, "sub", fixed.left(low, apart, 7), fixed.right(low, rest, 8))
    return Spread(distance, 7, fixed.both(low, "sub", total, extra), 2.0**bits)


def _spread_16(low: TosaLowering, x: Value, axes: Sequence[int], count: int, centred: bool, eps: float) -> Spread:
    """Squares are shortened so that their sum has room; distances are as long as they can be before."""
    distance = fixed.left(low, x, 4)
    rest = None
    if centred:
        mean = low.rescale(fixed.summed(low, x, axes), INT32, 2.0**13 / count)
        near = fixed.right(low, mean, 9)
        rest = fixed.both(low, "sub", mean, fixed.left(low, near, 9))  # in units of 2**-13 steps
        distance = fixed.both(low, "sub", distance, near)
    # Of 20 bits, those that no distance has; no more than eps, which grows as their square, has room for.
    room = min(16, max(0, math.floor(math.log2(2.0**30 / eps) / 2))) if eps else 16
    up = fixed.both(low, "minimum", _headroom(low, distance, axes), room)
    distance = fixed.left(low, distance, up)
    if rest is not None:
        distance = fixed.both(low, "sub", distance, fixed.right(low, fixed.left(low, rest, up), 9))
    less = _less(count, eps * 4.0**room)
    total = fixed.summed(low, fixed.mul(low, distance, distance, shift=less), axes)
    return Spread(distance, 4, total, _unit_16(count, eps * 4.0**room), up)


def _less(count: int, eps: float) -> int:
    """Bits that squares of 20 bits lose so that ``count`` of them, and eps, have room."""
    return max(0, math.ceil(math.log2(count * (2.0**30 + eps) * 2.0**8) - _ROOM))


def _unit_16(count: int, eps: float) -> float:
    return count * 2.0 ** (8 - _less(count, eps))


def _headroom(low: TosaLowering, x: Value, axes: Sequence[int]) -> Value:
    """How many bits all of ``x`` (of at most 20 bits) can go to the left."""
    size = low.rescale(low.node("abs", x.bound, INT32, input=x), INT16, 2.0**-5)
    for axis in axes:
        shape = [1 if a == axis else s for a, s in enumerate(size.bound)]
        size = low.node("reduce_max", shape, INT16, input=size, axis=axis)
    largest = fixed.both(low, "maximum", low.rescale(size, INT32, 1.0), 1)
    # Below 2**15, and rounded: one bit less than its leading zeros say.
    zeros = low.node("clz", largest.bound, INT32, input=largest)
    return fixed.both(low, "maximum", fixed.both(low, "sub", zeros, 18), 0)


def normalised(
    low: TosaLowering, x: Value, held: Value, axes: Sequence[int], centred: bool, eps: float
) -> tuple[Value, float]:
    """Distances over the root of their mean square plus ``eps``: 32-bit integers, and what one is worth."""
    narrow = held.dtype is not None and held.dtype.itemsize == 1
    steps = eps / scale_of(x) ** 2
    parts = spread(low, low.rescale(held, INT32, 1.0, zero_of(x)), axes, narrow, centred, steps)
    square = _with_eps(low, parts, steps)
    root, shift = fixed.rsqrt(low, square)
    less = 7 if narrow else 12  # 16 (or 21) bits of distance times 22 of the root: 31 stay
    made = fixed.right(low, fixed.mul(low, parts.distance, root, shift=less), fixed.minus(low, 15, shift))
    return made, 2.0 ** (15 + less - parts.bits - 36.5) * math.sqrt(parts.unit)


def _with_eps(low: TosaLowering, parts: Spread, eps: float) -> Value:
    """The mean square plus ``eps`` (in squares of steps), and no less than 1."""
    if parts.up is None:
        least = round(eps * parts.unit)
        return fixed.both(low, "add", parts.square, least) if least else fixed.both(low, "maximum", parts.square, 1)
    # Eps is shifted as the squares were. With 16 bits more than it needs, unless it is large.
    fine = min(16, max(0, 30 - math.ceil(math.log2(max(eps * parts.unit, 2.0**-30)))))
    twice = fixed.left(low, parts.up, 1)
    known = fixed.full(low, parts.up, min(round(eps * parts.unit * 2.0**fine), 2**30))
    bits = fixed.minus(low, fine, twice)
    down = fixed.right(low, known, fixed.both(low, "maximum", bits, 0))
    grown = fixed.left(low, down, fixed.both(low, "maximum", fixed.both(low, "sub", twice, fine), 0))
    return fixed.both(low, "maximum", fixed.both(low, "add", parts.square, grown), 1)


def constant_of(value: Value | None) -> Array | None:
    """A parameter's real numbers."""
    if value is None or value.data is None:
        return None
    return np.asarray(value.data if value.q is None else real(value.data, value.q), np.float64)


def affine(low: TosaLowering, op: Op, x: Value, unit: float, count: int, shape: Sequence[int]) -> tuple[Value, float]:
    """``x`` times the weights plus the biases, which are given ``shape``; and the unit of that."""
    weight, bias = constant_of(op.args.get("weight")), constant_of(op.args.get("bias"))
    if weight is None and bias is None:
        return x, unit
    weight = np.ones(1) if weight is None else weight
    bias = np.zeros(1) if bias is None else bias
    largest = max(float(np.abs(weight).max()), 2.0**-20)
    scale = largest / 2.0**15
    most = math.sqrt(count) * largest + float(np.abs(bias).max())  # no value is more than sqrt(count) deviations off
    shift = max(0, math.ceil(math.log2(most / 2.0**_ROOM / (unit * scale))))
    shaped = [np.reshape(p, shape if p.size > 1 else [1] * len(shape)) for p in (weight, bias)]
    made = fixed.mul(low, x, low.tensor(np.round(shaped[0] / scale), np.int32), shift=shift)
    unit = unit * scale * 2.0**shift
    if bias.any():
        made = fixed.both(low, "add", made, low.tensor(np.round(shaped[1] / unit), np.int32))
    return made, unit


def last_dims(centred: bool) -> Any:
    """``layer_norm`` and ``rms_norm``."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["input"], result(op)
        count = math.prod(op.args["normalized_shape"])
        held = low.reshaped(low.get(x), [1, math.prod(sizes(x)) // count, count])
        eps = op.args.get("eps")
        made, unit = normalised(low, x, held, [2], centred, float(np.finfo(np.float32).eps) if eps is None else eps)
        made, unit = affine(low, op, made, unit, count, [1, 1, count])
        low.alias(
            out, identity(len(out.shape)), low.reshaped(low.narrow(made, out, unit, op.args.get("limits")), sizes(out))
        )

    return lower


def groups(low: TosaLowering, op: Op) -> None:
    """``group_norm`` and ``instance_norm``: over images, and the channels of a group."""
    if op.kind == "instance_norm" and not op.args["use_input_stats"]:
        batch_norm(low, op)
        return
    x, out = op.args["input"], result(op)
    n, c, *image = sizes(x)
    area = math.prod(image)
    group = op.args.get("num_groups", op.args.get("group", c))
    after = len(x.shape) == 4 and NHWC in low.orders(x)
    order = NHWC if after else identity(len(x.shape))
    held = low.get(x, order)
    view, axes = ([n, area, group, c // group], [1, 3]) if after else ([1, n * group, c // group * area], [2])
    made, unit = normalised(low, x, low.reshaped(held, view), axes, True, op.args["eps"])
    flat, shape = ([n, area, c], [1, 1, c]) if after else ([n, c, area], [1, c, 1])
    made, unit = affine(low, op, low.reshaped(made, flat), unit, area * (c // group), shape)
    low.alias(out, order, low.reshaped(low.narrow(made, out, unit, op.args.get("limits")), held.bound))


def batch_norm(low: TosaLowering, op: Op) -> None:
    """With known statistics: a depthwise convolution of one pixel."""
    x, out = op.args["input"], result(op)
    mean, var, weight, bias = (constant_of(op.args.get(n)) for n in ("running_mean", "running_var", "weight", "bias"))
    assert mean is not None and var is not None
    slope = (1.0 if weight is None else weight) / np.sqrt(var + op.args["eps"])
    offset = (0.0 if bias is None else bias) - mean * slope
    order = last(1, len(x.shape))
    held = low.get(x, order)
    c = held.bound[-1]
    if x.q is None:
        shape = [1] * (len(order) - 1) + [c]
        steep = low.node("mul", held.bound, FLOAT32, a=held, b=low.tensor(slope.reshape(shape), np.float32), shift=0)
        start = low.tensor(np.broadcast_to(offset, c).reshape(shape), np.float32)
        low.finish(op, order, low.node("add", held.bound, FLOAT32, a=steep, b=start))
        return
    flat = low.reshaped(held, [held.bound[0], math.prod(held.bound[1:-1]), 1, c])
    # Each channel's one weight is 127 of its own scale, which the result's multiplier then is.
    scales = np.maximum(np.abs(slope), 2.0**-40) / 127
    wide = INT32 if x.q.dtype.itemsize == 1 else INT48
    top = 2.0 ** (31 if wide == INT32 else 47) - 1
    start = np.clip(np.round(offset / (scales * scale_of(x))), -top, top)
    acc = low.node(
        "depthwise_conv2d", flat.bound, wide, input=flat, bias=low.tensor(start, wide), input_zp=zero_of(x),
        weight=low.tensor(np.where(slope < 0, -127, 127).reshape(1, 1, c, 1), np.int8), weight_zp=0, pad=[0] * 4,
        stride=[1, 1], dilation=[1, 1],
    )  # fmt: skip
    made = low.narrow(acc, out, scales * scale_of(x), op.args.get("limits"))
    low.alias(out, order, low.reshaped(made, held.bound))


def variance(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    dims, (order, held, axes) = over(op), _reduced(low, op)
    count = math.prod(x.bound[d] for d in dims)
    narrow = x.q.dtype.itemsize == 1
    parts = spread(low, low.rescale(held, INT32, 1.0, zero_of(x)), axes, narrow, True, 0.0)
    factor = scale_of(x) ** 2 / parts.unit * count / (count - _correction(op))
    square = parts.square if parts.up is None else fixed.right(low, parts.square, fixed.left(low, parts.up, 1))
    settle(low, op, order, dims, low.narrow(square, out, factor, op.args.get("limits")))


def _correction(op: Op) -> float:
    given = op.args.get("correction")
    return float(op.args.get("unbiased", True)) if given is None else float(given)


def _reduced(low: TosaLowering, op: Op) -> tuple[tuple[int, ...], Value, list[int]]:
    x = op.args["self"]
    order = NHWC if len(x.shape) == 4 and NHWC in low.orders(x) else identity(len(x.shape))
    return order, low.get(x, order), [order.index(d) for d in over(op)]


def vector_norm(low: TosaLowering, op: Op) -> None:
    """Of order 2: the root of the sum of squares; of order 1: the sum of magnitudes."""
    x, out = op.args["self"], result(op)
    dims, (order, held, axes) = over(op), _reduced(low, op)
    wide = low.rescale(held, INT32, 1.0, zero_of(x))
    if op.args.get("ord", 2) == 1:
        acc = fixed.summed(low, low.node("abs", wide.bound, INT32, input=wide), axes)
        settle(low, op, order, dims, low.narrow(acc, out, scale_of(x), op.args.get("limits")))
        return
    count = math.prod(x.bound[d] for d in dims)
    less = max(0, math.ceil(math.log2(count / (_SQUARES if x.q.dtype.itemsize == 1 else 1))))
    total = fixed.summed(low, fixed.mul(low, wide, wide, shift=less), axes)
    root, shift = fixed.sqrt(low, total)
    made = fixed.right(low, root, shift)
    # Zero has no leading digit: nothing may be more than a multiple of its own square.
    made = fixed.both(low, "minimum", made, fixed.left(low, fixed.both(low, "minimum", total, 2**20), 7))
    settle(low, op, order, dims, low.narrow(made, out, scale_of(x) * 2.0 ** (less / 2 - 6.5), op.args.get("limits")))


# ----------------------------------------------------------------------------------------------------------- rules


def _count(op: Op) -> int:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    if op.kind in ("layer_norm", "rms_norm"):
        return math.prod(op.args["normalized_shape"])
    if op.kind in ("var", "linalg_vector_norm"):
        return math.prod(x.bound[d] for d in over(op))
    group: int = op.args.get("num_groups", op.args.get("group", x.bound[1]))
    return math.prod(x.bound[1:]) // group


def _too_many(op: Op, target: Any) -> object:
    x: Value = op.args["input"] if "input" in op.args else op.args["self"]
    width = x.q.dtype.itemsize if x.q is not None else 2
    return count if (count := _count(op)) > LONGEST.get(width, 0) else OK


not_too_many = Rule(f"at most {LONGEST[1]} elements may be summed, or {LONGEST[2]} of 16 bits", _too_many)
known_order = Rule(
    "the norm must be of order 1 or 2", lambda op, _: OK if op.args.get("ord", 2) in (1, 2) else op.args["ord"]
)
spare = Rule(
    "there must be more elements than the correction",
    lambda op, _: OK if _count(op) > _correction(op) >= 0 else f"{_count(op)} and {_correction(op)}",
)


def _coarse(op: Op, target: Any) -> object:
    x, out, count = op.args["self"], result(op), _count(op)
    if x.q is None or out.q is None or x.q.dtype.itemsize == 1 or count <= _correction(op):
        return OK
    off = scale_of(x) ** 2 / _unit_16(count, 0.0) * count / (count - _correction(op)) / 2 / scale_of(out)
    return OK if off <= WORST else f"{off:.0f} steps off at worst"


spread_enough = Rule(f"of 16 bits, variances must be large enough for {WORST} last places", _coarse)
