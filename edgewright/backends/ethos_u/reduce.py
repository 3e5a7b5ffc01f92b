"""Lowering of reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.pool import MAX_WINDOW, axis_sum, global_average, window_sum
from edgewright.backends.ethos_u.slice_concat import slice_axis
from edgewright.backends.table import reduced_dims
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order, identity

Lower = Callable[[TosaLowering, Op], None]


def available_order(low: TosaLowering, x: Value) -> Order:
    """The non-default dimension order a tensor is stored in, if there is one."""
    return next((o for o in low.orders(x) if o != identity(len(o))), identity(len(x.shape)))


def sum_or_mean(mean: bool) -> Lower:
    """``mean`` or ``sum``: a depthwise convolution with ones over height and width, REDUCE_SUM otherwise."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out, dims = op.args["self"], result(op), reduced_dims(op)
        count = math.prod(x.bound[d] for d in dims)
        unit = scale_of(x) / (count if mean else 1)
        order = available_order(low, x)
        tensor = low.get(x, order)
        axes = [order.index(d) for d in dims]
        if mean and axes == [1, 2] and len(order) == 4:
            alias_reduced(low, op, order, dims, global_average(low, op, x, tensor))
            return
        if x.q is not None and axes == [1, 2] and len(order) == 4 and max(tensor.bound[1:3]) <= MAX_WINDOW:
            acc = window_sum(low, tensor, x, tensor.bound[1:3], [1, 1], [0] * 4)
        else:
            acc = tensor if x.q is None else low.rescale(tensor, INT32, 1.0, zero_of(x))
            for axis in axes:
                acc = axis_sum(low, acc, axis)
        if x.q is None and mean:
            reciprocal = low.const(np.full([1] * len(order), 1 / count), np.float32)
            acc = low.node("mul", acc.bound, FLOAT32, a=acc, b=reciprocal, shift=0)
        alias_reduced(low, op, order, dims, low.requantize(acc, out, unit, op.args.get("limits")))

    return lower


def alias_reduced(low: TosaLowering, op: Op, order: Order, dims: Sequence[int], reduced: Value) -> None:
    """Bind a reduction with kept dimensions as the result, reshaped if the operator drops them."""
    out = result(op)
    if len(out.shape) == len(order):
        low.alias(out, order, reduced)
        return
    remaining = [d for d in order if d not in dims]
    renumbered = {d: i for i, d in enumerate(sorted(remaining))}
    final = tuple(renumbered[d] for d in remaining)
    low.alias(out, final, low.reshape(reduced, [out.bound[d] for d in final]))


def reduce_each_dim(kind: str) -> Lower:
    """``amax``, ``amin``, ``max_dim``, ``any``: one reduction per dimension."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        dims = [] if kind == "reduce_any" and op.args.get("dim") == [] else reduced_dims(op)
        order = available_order(low, x)
        reduced = low.get(x, order)
        if kind == "reduce_any" and reduced.dtype != BOOL:
            reduced = low.node("cast", reduced.bound, BOOL, input=reduced, dtype="bool")
        for axis in (order.index(d) for d in dims):
            if reduced.bound[axis] > 1:
                shape = [1 if a == axis else s for a, s in enumerate(reduced.bound)]
                reduced = low.node(kind, shape, reduced.dtype, input=reduced, axis=axis)
                if (
                    kind == "reduce_min" and reduced.dtype != FLOAT32
                ):  # keeps Vela from fusing it with a following reshape
                    limits = np.iinfo(reduced.dtype)
                    reduced = low.clamp(reduced, limits.min, limits.max)
        alias_reduced(low, op, order, dims, reduced if kind == "reduce_any" else requantize_to(low, x, out, reduced))

    return lower


def argmax(low: TosaLowering, op: Op) -> None:
    """Index of the maximum along one dimension, moved last, or in the flattened tensor."""
    x, out = op.args["self"], result(op)
    dim, rank = op.args.get("dim"), len(x.shape)
    if dim is None:
        rows = low.reshape(low.get(x), [1, math.prod(x.bound)])
    else:
        dim %= rank
        last_dim = low.get(x, (*(d for d in range(rank) if d != dim), dim))
        rows = low.reshape(last_dim, [math.prod(last_dim.bound[:-1]), last_dim.bound[-1]])
    indices = low.node("argmax", [rows.bound[0]], INT32, input=rows, axis=1)
    low.alias(out, identity(len(out.shape)), low.reshape(indices, list(out.bound)))


def cumsum(low: TosaLowering, op: Op) -> None:
    """Hillis-Steele scan: each step adds the partial sums twice as far back."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    tensor, unit = low.get(x, order), scale_of(x)
    if not order:
        low.alias(out, order, low.requantize(low.rescale(tensor, INT32, 1.0, zero_of(x)), out, unit))
        return
    axis = order.index(op.args["dim"] % len(order))
    size = tensor.bound[axis]
    acc = tensor if x.q is None else low.rescale(tensor, INT32, 1.0, zero_of(x))
    distance = 1
    while distance < size:
        padding = [distance if i == 2 * axis else 0 for i in range(2 * len(order))]
        head = slice_axis(low, acc, axis, 0, size - distance)
        shifted = low.node("pad", acc.bound, acc.dtype, input=head, padding=padding, value=low.const([0], acc.dtype))
        acc = low.node("add", acc.bound, acc.dtype, a=acc, b=shifted)
        distance *= 2
    low.alias(out, order, low.requantize(acc, out, unit, op.args.get("limits")))
