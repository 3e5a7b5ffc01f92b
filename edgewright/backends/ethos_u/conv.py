"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.accumulate import accumulator, bias_of, units_of
from edgewright.backends.ethos_u.lower import TosaLowering, result, scale_of, sizes, zero_of
from edgewright.backends.ethos_u.split_conv import is_transposed, too_long
from edgewright.backends.ethos_u.transposed_conv import dilated, transposed
from edgewright.backends.table import pads_of, spread
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import identity


def fit(low: TosaLowering, x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
        pad: Sequence[int]) -> tuple[Value, list[int]]:  # fmt: skip
    """An image and padding that windows cover exactly: what they do not reach is taken off, as TOSA asks."""
    pads, shape = list(pad), list(x.bound)
    for axis in range(len(kernel)):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        left = (shape[1 + axis] + pads[2 * axis] + pads[2 * axis + 1] - reach) % stride[axis]
        less = min(left, max(pads[2 * axis + 1], 0))
        pads[2 * axis + 1] -= less
        shape[1 + axis] -= left - less
    return low.sliced(x, [0] * len(shape), shape), pads


def convolution(low: TosaLowering, op: Op) -> None:
    """Images and volumes; sequences are images one pixel high, and one image alone is a batch of one."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    rank = weight.data.ndim
    order = tuple(d for d in (0, *range(2, rank), 1))
    order = order if len(x.shape) == rank else tuple(d - 1 for d in order[1:])  # without a batch
    image = low.get(x, order)
    whole = [*([1] if len(x.shape) < rank else []), *image.bound]
    image = low.reshaped(image, [whole[0], 1, *whole[1:]] if rank == 3 else whole)
    data = weight.data[:, :, None, :] if rank == 3 else weight.data
    made = (transposed if is_transposed(op) else _forward)(low, op, image, data)
    low.alias(out, order, low.reshaped(made, [out.bound[d] for d in order]))


def _forward(low: TosaLowering, op: Op, image: Value, data: Array) -> Value:
    x = op.args["input"]
    units = units_of(op)
    stride, dilation = spread(op, "stride", 1), spread(op, "dilation", 1)
    if too_long(op, low.target) and data.ndim == 4 and not is_depthwise(op):  # nor where anything is between taps
        data, dilation = dilated(data, dilation), [1, 1]
    pads = [side for both in pads_of(op) for side in both]
    image, pads = fit(low, image, data.shape[2:], stride, dilation, pads)
    if any(pads) and too_long(op, low.target):  # Vela splits long steps only where nothing is padded
        image, pads = padded(low, image, pads, zero_of(x)), [0] * len(pads)
    size = [
        (image.bound[1 + a] + pads[2 * a] + pads[2 * a + 1] - (k - 1) * dilation[a] - 1) // stride[a] + 1
        for a, k in enumerate(data.shape[2:])
    ]
    args: dict[str, Any] = {
        "input": image, "input_zp": zero_of(x), "weight_zp": 0, "pad": pads, "stride": stride, "dilation": dilation,
        "bias": bias_of(low, op, units, data.shape[0]),
    }  # fmt: skip
    shape, dtype = [image.bound[0], *size, data.shape[0]], accumulator(x)
    if is_depthwise(op):
        groups = op.args["groups"]
        taps = data[:, 0].reshape(groups, -1, *data.shape[2:]).transpose(2, 3, 0, 1)
        acc = low.node("depthwise_conv2d", shape, dtype, weight=low.tensor(taps), **args)
    else:
        filters = low.tensor(np.moveaxis(data, 1, -1))
        acc = low.node("conv3d" if data.ndim == 5 else "conv2d", shape, dtype, weight=filters, **args)
    return low.narrow(acc, result(op), units, op.args.get("limits"))


def padded(low: TosaLowering, image: Value, pads: Sequence[int], value: int) -> Value:
    """An image with its border made real; ``pads`` are of its inner dimensions, two each."""
    every = [0, 0, *pads, 0, 0]
    shape = [n + every[2 * i] + every[2 * i + 1] for i, n in enumerate(image.bound)]
    return low.node("pad", shape, image.dtype, input=image, value=low.tensor([value], image.dtype), padding=every)


def is_depthwise(op: Op) -> bool:
    return bool(op.args["groups"] > 1 and op.args["weight"].shape[1] == 1 and not is_transposed(op))


def linear(low: TosaLowering, op: Op) -> None:
    """A matrix product with constant weights is a convolution of one pixel."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    held, columns = flat_rows(low, x)
    count = int(np.prod(held.bound[:-1]))
    data = weight.data if columns is None else weight.data[:, columns]
    image = low.reshaped(held, [1, count, 1, data.shape[1]])
    units = units_of(op)
    acc = low.node(
        "conv2d", [1, count, 1, data.shape[0]], accumulator(x), input=image,
        weight=low.tensor(data[:, None, None, :]), bias=bias_of(low, op, units, data.shape[0]),
        input_zp=zero_of(x), weight_zp=0, pad=[0] * 4, stride=[1, 1], dilation=[1, 1],
    )  # fmt: skip
    low.alias(
        out, identity(len(out.shape)), low.reshaped(low.narrow(acc, out, units, op.args.get("limits")), sizes(out))
    )


def flat_rows(low: TosaLowering, x: Value) -> tuple[Value, Array | None]:
    """A matrix to be multiplied; and, if it is a flattened image held with channels last, the order of its columns."""
    flat = low.flat.get(x)
    return flat if flat is not None else (low.get(x), None)


def matmul(low: TosaLowering, op: Op) -> None:
    """Two matrices, or as many pairs, that are both computed."""
    a, b, out = op.args["self"], op.args["mat2"], result(op)
    left, right = (low.get(v) for v in (a, b))
    pairs = [low.reshaped(v, [1] * (3 - len(v.bound)) + list(v.bound)) for v in (left, right)]
    shape = [pairs[0].bound[0], pairs[0].bound[1], pairs[1].bound[2]]
    acc = low.node("matmul", shape, accumulator(a), a=pairs[0], b=pairs[1], a_zp=zero_of(a), b_zp=zero_of(b))
    made = low.narrow(acc, out, scale_of(a) * scale_of(b), op.args.get("limits"))
    low.alias(out, identity(len(out.shape)), low.reshaped(made, sizes(out)))
