"""Normalization layers as one operator each in int32, so that no intermediate scale needs calibration.

Sums are exact; ``1 / sqrt(variance)`` is a table of the normalized sum (``fixed_point.rsqrt``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import dequantize
from edgewright.backends.ethos_u.lower import (
    FLOAT32,
    INT32,
    INT48,
    TosaLowering,
    result,
    scale_of,
    static_sizes,
    zero_of,
)
from edgewright.backends.ethos_u.variance import SQUARE_BITS, Moments, compute_moments
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import NHWC, identity, order_with_last


def normalize(
    low: TosaLowering, x: Value, tensor: Value, axes: Sequence[int], subtract_mean: bool, eps: float
) -> tuple[Value, float]:
    """Deviations over the root of their mean square plus ``eps``: int32 values and their unit."""
    narrow = tensor.dtype is not None and tensor.dtype.itemsize == 1
    steps = eps / scale_of(x) ** 2
    moments = compute_moments(low, low.rescale(tensor, INT32, 1.0, zero_of(x)), axes, narrow, subtract_mean, steps)
    square = _add_eps(low, moments, steps)
    root, shift = fixed_point.rsqrt(low, square)
    product_shift = 7 if narrow else 12  # a 16-bit (or 21-bit) deviation times a 22-bit root, reduced to 31 bits
    normalized = fixed_point.shift_right(
        low,
        fixed_point.mul(low, moments.deviation, root, shift=product_shift),
        fixed_point.subtract_from(low, 15, shift),
    )
    return normalized, 2.0 ** (15 + product_shift - moments.bits - 36.5) * math.sqrt(moments.unit)


def _add_eps(low: TosaLowering, moments: Moments, eps: float) -> Value:
    """Mean square plus ``eps`` (in squared steps), at least 1."""
    if moments.headroom_shift is None:
        rounded_eps = round(eps * moments.unit)
        return (
            fixed_point.binary(low, "add", moments.mean_square, rounded_eps)
            if rounded_eps
            else fixed_point.binary(low, "maximum", moments.mean_square, 1)
        )
    # Shift eps like the squares, with 16 guard bits unless it is large.
    eps_bits = min(16, max(0, 30 - math.ceil(math.log2(max(eps * moments.unit, 2.0**-30)))))
    twice = fixed_point.shift_left(low, moments.headroom_shift, 1)
    fixed_eps = fixed_point.scalar_like(
        low, moments.headroom_shift, min(round(eps * moments.unit * 2.0**eps_bits), 2**30)
    )
    bits = fixed_point.subtract_from(low, eps_bits, twice)
    down = fixed_point.shift_right(low, fixed_eps, fixed_point.binary(low, "maximum", bits, 0))
    shifted_eps = fixed_point.shift_left(
        low, down, fixed_point.binary(low, "maximum", fixed_point.binary(low, "sub", twice, eps_bits), 0)
    )
    return fixed_point.binary(low, "maximum", fixed_point.binary(low, "add", moments.mean_square, shifted_eps), 1)


def dequantized_constant(value: Value | None) -> Array | None:
    """A parameter as float64."""
    if value is None or value.data is None:
        return None
    return np.asarray(value.data if value.q is None else dequantize(value.data, value.q), np.float64)


def apply_affine(
    low: TosaLowering, op: Op, x: Value, unit: float, count: int, shape: Sequence[int]
) -> tuple[Value, float]:
    """``x * weight + bias``, with the parameters reshaped to ``shape``, and its unit."""
    weight, bias = dequantized_constant(op.args.get("weight")), dequantized_constant(op.args.get("bias"))
    if weight is None and bias is None:
        return x, unit
    weight = np.ones(1) if weight is None else weight
    bias = np.zeros(1) if bias is None else bias
    largest = max(float(np.abs(weight).max()), 2.0**-20)
    scale = largest / 2.0**15
    bound = math.sqrt(count) * largest + float(np.abs(bias).max())  # a normalized value is at most sqrt(count)
    shift = max(0, math.ceil(math.log2(bound / 2.0**SQUARE_BITS / (unit * scale))))
    shaped = [np.reshape(p, shape if p.size > 1 else [1] * len(shape)) for p in (weight, bias)]
    scaled = fixed_point.mul(low, x, low.const(np.round(shaped[0] / scale), np.int32), shift=shift)
    unit = unit * scale * 2.0**shift
    if bias.any():
        scaled = fixed_point.binary(low, "add", scaled, low.const(np.round(shaped[1] / unit), np.int32))
    return scaled, unit


def layer_norm(subtract_mean: bool) -> Any:
    """``layer_norm`` (``subtract_mean``) and ``rms_norm``."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["input"], result(op)
        count = math.prod(op.args["normalized_shape"])
        rows = low.reshape(low.get(x), [1, math.prod(static_sizes(x)) // count, count])
        eps = op.args.get("eps")
        normalized, unit = normalize(
            low, x, rows, [2], subtract_mean, float(np.finfo(np.float32).eps) if eps is None else eps
        )
        normalized, unit = apply_affine(low, op, normalized, unit, count, [1, 1, count])
        low.alias(
            out,
            identity(len(out.shape)),
            low.reshape(low.requantize(normalized, out, unit, op.args.get("limits")), static_sizes(out)),
        )

    return lower


def group_norm(low: TosaLowering, op: Op) -> None:
    """``group_norm`` and ``instance_norm``: over pixels and the channels of a group."""
    if op.kind == "instance_norm" and not op.args["use_input_stats"]:
        batch_norm(low, op)
        return
    x, out = op.args["input"], result(op)
    n, c, *image = static_sizes(x)
    area = math.prod(image)
    group = op.args.get("num_groups", op.args.get("group", c))
    channels_last = len(x.shape) == 4 and NHWC in low.orders(x)
    order = NHWC if channels_last else identity(len(x.shape))
    tensor = low.get(x, order)
    view, axes = ([n, area, group, c // group], [1, 3]) if channels_last else ([1, n * group, c // group * area], [2])
    normalized, unit = normalize(low, x, low.reshape(tensor, view), axes, True, op.args["eps"])
    flat, shape = ([n, area, c], [1, 1, c]) if channels_last else ([n, c, area], [1, c, 1])
    normalized, unit = apply_affine(low, op, low.reshape(normalized, flat), unit, area * (c // group), shape)
    low.alias(out, order, low.reshape(low.requantize(normalized, out, unit, op.args.get("limits")), tensor.bound))


def batch_norm(low: TosaLowering, op: Op) -> None:
    """Batch norm with running statistics: a 1x1 depthwise convolution."""
    x, out = op.args["input"], result(op)
    mean, var, weight, bias = (
        dequantized_constant(op.args.get(n)) for n in ("running_mean", "running_var", "weight", "bias")
    )
    assert mean is not None and var is not None
    slope = (1.0 if weight is None else weight) / np.sqrt(var + op.args["eps"])
    offset = (0.0 if bias is None else bias) - mean * slope
    order = order_with_last(1, len(x.shape))
    tensor = low.get(x, order)
    c = tensor.bound[-1]
    if x.q is None:
        shape = [1] * (len(order) - 1) + [c]
        scaled = low.node(
            "mul", tensor.bound, FLOAT32, a=tensor, b=low.const(slope.reshape(shape), np.float32), shift=0
        )
        start = low.const(np.broadcast_to(offset, c).reshape(shape), np.float32)
        low.finish(op, order, low.node("add", tensor.bound, FLOAT32, a=scaled, b=start))
        return
    flat = low.reshape(tensor, [tensor.bound[0], math.prod(tensor.bound[1:-1]), 1, c])
    # Each channel's weight is 127 in its own scale, which becomes part of the output multiplier.
    scales = np.maximum(np.abs(slope), 2.0**-40) / 127
    wide = INT32 if x.q.dtype.itemsize == 1 else INT48
    top = 2.0 ** (31 if wide == INT32 else 47) - 1
    start = np.clip(np.round(offset / (scales * scale_of(x))), -top, top)
    acc = low.node(
        "depthwise_conv2d", flat.bound, wide, input=flat, bias=low.const(start, wide), input_zp=zero_of(x),
        weight=low.const(np.where(slope < 0, -127, 127).reshape(1, 1, c, 1), np.int8), weight_zp=0, pad=[0] * 4,
        stride=[1, 1], dilation=[1, 1],
    )  # fmt: skip
    requantized = low.requantize(acc, out, scales * scale_of(x), op.args.get("limits"))
    low.alias(out, order, low.reshape(requantized, tensor.bound))
