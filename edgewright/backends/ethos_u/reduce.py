"""Lowering of reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.pool import MAX_WINDOW, axis_sum, image_mean, window_sum
from edgewright.backends.ethos_u.slice_concat import cut
from edgewright.backends.table import over
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order, identity

Lower = Callable[[TosaLowering, Op], None]


def order_of(low: TosaLowering, x: Value) -> Order:
    """The order a tensor is held in, if it is not its own."""
    return next((o for o in low.orders(x) if o != identity(len(o))), identity(len(x.shape)))


def summed(factor: bool) -> Lower:
    """``mean`` (or ``sum``): one depthwise convolution with ones where it is over height and width, else sums."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out, dims = op.args["self"], result(op), over(op)
        count = math.prod(x.bound[d] for d in dims)
        unit = scale_of(x) / (count if factor else 1)
        order = order_of(low, x)
        held = low.get(x, order)
        axes = [order.index(d) for d in dims]
        if factor and axes == [1, 2] and len(order) == 4:
            settle(low, op, order, dims, image_mean(low, op, x, held))
            return
        if x.q is not None and axes == [1, 2] and len(order) == 4 and max(held.bound[1:3]) <= MAX_WINDOW:
            acc = window_sum(low, held, x, held.bound[1:3], [1, 1], [0] * 4)
        else:
            acc = held if x.q is None else low.rescale(held, INT32, 1.0, zero_of(x))
            for axis in axes:
                acc = axis_sum(low, acc, axis)
        if x.q is None and factor:
            part = low.tensor(np.full([1] * len(order), 1 / count), np.float32)
            acc = low.node("mul", acc.bound, FLOAT32, a=acc, b=part, shift=0)
        settle(low, op, order, dims, low.narrow(acc, out, unit, op.args.get("limits")))

    return lower


def settle(low: TosaLowering, op: Op, order: Order, dims: Sequence[int], made: Value) -> None:
    """Give a reduction's result (with sizes of 1 where it was reduced) the shape the operator has."""
    out = result(op)
    if len(out.shape) == len(order):
        low.alias(out, order, made)
        return
    kept = [d for d in order if d not in dims]
    names = {d: i for i, d in enumerate(sorted(kept))}
    final = tuple(names[d] for d in kept)
    low.alias(out, final, low.reshaped(made, [out.bound[d] for d in final]))


def extreme(kind: str) -> Lower:
    """``amax``, ``max_dim``, ``any`` and the like: one dimension after the other."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        dims = [] if kind == "reduce_any" and op.args.get("dim") == [] else over(op)
        order = order_of(low, x)
        held = low.get(x, order)
        if kind == "reduce_any" and held.dtype != BOOL:
            held = low.node("cast", held.bound, BOOL, input=held, dtype="bool")
        for axis in (order.index(d) for d in dims):
            if held.bound[axis] > 1:
                shape = [1 if a == axis else s for a, s in enumerate(held.bound)]
                held = low.node(kind, shape, held.dtype, input=held, axis=axis)
                if kind == "reduce_min" and held.dtype != FLOAT32:  # Vela must not merge it with a reshape after it
                    limits = np.iinfo(held.dtype)
                    held = low.clamped(held, limits.min, limits.max)
        settle(low, op, order, dims, held if kind == "reduce_any" else stored_as(low, x, out, held))

    return lower


def argmax(low: TosaLowering, op: Op) -> None:
    """The place of the largest along one dimension, or in the whole tensor; always the last dimension here."""
    x, out = op.args["self"], result(op)
    dim, rank = op.args.get("dim"), len(x.shape)
    if dim is None:
        held = low.reshaped(low.get(x), [1, math.prod(x.bound)])
    else:
        dim %= rank
        turned = low.get(x, (*(d for d in range(rank) if d != dim), dim))
        held = low.reshaped(turned, [math.prod(turned.bound[:-1]), turned.bound[-1]])
    made = low.node("argmax", [held.bound[0]], INT32, input=held, axis=1)
    low.alias(out, identity(len(out.shape)), low.reshaped(made, list(out.bound)))


def cumsum(low: TosaLowering, op: Op) -> None:
    """Sums of ever more elements: each step adds what lies twice as far back."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    held, unit = low.get(x, order), scale_of(x)
    if not order:
        low.alias(out, order, low.narrow(low.rescale(held, INT32, 1.0, zero_of(x)), out, unit))
        return
    axis = order.index(op.args["dim"] % len(order))
    size = held.bound[axis]
    acc = held if x.q is None else low.rescale(held, INT32, 1.0, zero_of(x))
    back = 1
    while back < size:
        padding = [back if i == 2 * axis else 0 for i in range(2 * len(order))]
        early = cut(low, acc, axis, 0, size - back)
        late = low.node("pad", acc.bound, acc.dtype, input=early, padding=padding, value=low.tensor([0], acc.dtype))
        acc = low.node("add", acc.bound, acc.dtype, a=acc, b=late)
        back *= 2
    low.alias(out, order, low.narrow(acc, out, unit, op.args.get("limits")))
