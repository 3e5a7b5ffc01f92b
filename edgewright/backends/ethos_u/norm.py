"""Normalisations as one operator each, on 32-bit integers: no scale between their steps needs calibration.

Sums are exact; the square root's reciprocal is a table of the normalised sum (``fixed``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import real
from edgewright.backends.ethos_u.lower import FLOAT32, INT32, INT48, TosaLowering, result, scale_of, sizes, zero_of
from edgewright.backends.ethos_u.variance import ROOM, Spread, spread
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import NHWC, identity, last


def normalised(
    low: TosaLowering, x: Value, held: Value, axes: Sequence[int], centred: bool, eps: float
) -> tuple[Value, float]:
    """Distances over the root of their mean square plus ``eps``: 32-bit integers, and what one is worth."""
    narrow = held.dtype is not None and held.dtype.itemsize == 1
    steps = eps / scale_of(x) ** 2
    parts = spread(low, low.rescale(held, INT32, 1.0, zero_of(x)), axes, narrow, centred, steps)
    square = _with_eps(low, parts, steps)
    root, shift = fixed_point.rsqrt(low, square)
    less = 7 if narrow else 12  # 16 (or 21) bits of distance times 22 of the root: 31 stay
    made = fixed_point.right(
        low, fixed_point.mul(low, parts.distance, root, shift=less), fixed_point.minus(low, 15, shift)
    )
    return made, 2.0 ** (15 + less - parts.bits - 36.5) * math.sqrt(parts.unit)


def _with_eps(low: TosaLowering, parts: Spread, eps: float) -> Value:
    """The mean square plus ``eps`` (in squares of steps), and no less than 1."""
    if parts.up is None:
        least = round(eps * parts.unit)
        return (
            fixed_point.both(low, "add", parts.square, least)
            if least
            else fixed_point.both(low, "maximum", parts.square, 1)
        )
    # Eps is shifted as the squares were. With 16 bits more than it needs, unless it is large.
    fine = min(16, max(0, 30 - math.ceil(math.log2(max(eps * parts.unit, 2.0**-30)))))
    twice = fixed_point.left(low, parts.up, 1)
    known = fixed_point.full(low, parts.up, min(round(eps * parts.unit * 2.0**fine), 2**30))
    bits = fixed_point.minus(low, fine, twice)
    down = fixed_point.right(low, known, fixed_point.both(low, "maximum", bits, 0))
    grown = fixed_point.left(low, down, fixed_point.both(low, "maximum", fixed_point.both(low, "sub", twice, fine), 0))
    return fixed_point.both(low, "maximum", fixed_point.both(low, "add", parts.square, grown), 1)


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
    shift = max(0, math.ceil(math.log2(most / 2.0**ROOM / (unit * scale))))
    shaped = [np.reshape(p, shape if p.size > 1 else [1] * len(shape)) for p in (weight, bias)]
    made = fixed_point.mul(low, x, low.tensor(np.round(shaped[0] / scale), np.int32), shift=shift)
    unit = unit * scale * 2.0**shift
    if bias.any():
        made = fixed_point.both(low, "add", made, low.tensor(np.round(shaped[1] / unit), np.int32))
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
