"""Lowering of reductions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.ethos_u.convolutions import fit
from edgewright.backends.ethos_u.lower import FLOAT32, INT32, TosaLowering, result, scale_of, sizes, zero_of
from edgewright.backends.table import over, pool_arguments
from edgewright.ir.graph import Op, Value
from edgewright.passes.layout import NHWC, Order, identity

MAX_WINDOW = 64  # of a convolution, each way


def summed(factor: bool) -> object:
    """``mean`` (or ``sum``): one depthwise convolution with ones where it is over height and width, else sums."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        dims = [2, 3] if op.kind == "adaptive_avg_pool2d" else over(op)
        count = math.prod(x.bound[d] for d in dims)
        unit = scale_of(x) / (count if factor else 1)
        order = NHWC if len(x.shape) == 4 and NHWC in low.orders(x) else identity(len(x.shape))
        held = low.get(x, order)
        axes = [order.index(d) for d in dims]
        if x.q is not None and axes == [1, 2] and len(order) == 4 and max(held.bound[1:3]) <= MAX_WINDOW:
            acc = _window_sum(low, held, x)
        else:
            acc = held if x.q is None else low.rescale(held, INT32, 1.0, zero_of(x))
            for axis in axes:
                shape = [1 if a == axis else s for a, s in enumerate(acc.bound)]
                acc = low.node("reduce_sum", shape, acc.dtype, input=acc, axis=axis)
        if x.q is None and factor:
            acc = low.node("mul", acc.bound, FLOAT32, a=acc, b=low.tensor(np.full([1] * len(order), 1 / count, np.float32)), shift=0)  # fmt: skip
        settle(low, op, order, dims, low.narrow(acc, out, unit, op.args.get("limits")))

    return lower


def _window_sum(low: TosaLowering, held: Value, x: Value) -> Value:
    n, h, w, c = held.bound
    return low.node("depthwise_conv2d", [n, 1, 1, c], INT32, input=held, weight=low.tensor(np.ones((h, w, c, 1), np.int8)),
                    bias=low.tensor(np.zeros(c, np.int32)), input_zp=zero_of(x), weight_zp=0, pad=[0] * 4,
                    stride=[1, 1], dilation=[1, 1])  # fmt: skip


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


def max_pool2d(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    kernel, stride, pads, _ = pool_arguments(op)
    for axis in (0, 1):  # ceil_mode is padding at the end
        covered = (out.bound[2 + axis] - 1) * stride[axis] + kernel[axis]
        pads[2 * axis + 1] = max(pads[2 * axis + 1], covered - x.bound[2 + axis] - pads[2 * axis])
    image, pads = fit(low, low.get(x, NHWC), kernel, stride, (1, 1), pads)
    shape = [out.bound[d] for d in NHWC]
    low.alias(
        out, NHWC, low.node("max_pool2d", shape, image.dtype, input=image, kernel=kernel, stride=stride, pad=pads)
    )


def view(low: TosaLowering, op: Op) -> None:
    x, out = op.args[next(iter(op.args))], result(op)
    low.alias(out, identity(len(out.shape)), low.reshaped(low.get(x), sizes(out)))
