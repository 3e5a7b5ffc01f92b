"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import (
    FLOAT32,
    INT32,
    INT48,
    TosaLowering,
    fixed_point,
    result,
    scale_of,
    sizes,
    zero_of,
)
from edgewright.ir.graph import Array, Op, Value
from edgewright.passes.layout import NHWC, NLC, identity

__all__ = ["bias_of", "convolution", "fixed_point", "linear", "matmul"]


def weight_scales(weight: Value) -> Array:
    return np.asarray(weight.q.scale if weight.q is not None else 1.0, np.float64)


def accumulator(value: Value) -> Any:
    if value.q is None:
        return FLOAT32
    return INT48 if value.q.dtype.itemsize == 2 else INT32


def bias_of(low: TosaLowering, op: Op, units: Array, channels: int) -> Value:
    """The bias in units of the accumulator: the input's scale times the weight's."""
    bias, x = op.args.get("bias"), op.args["input"]
    data = np.zeros(channels) if bias is None else np.asarray(bias.data, np.float64)
    if bias is not None and bias.q is not None:
        data = (data - np.asarray(bias.q.zero_point)) * np.asarray(bias.q.scale)
    if x.q is None:
        return low.tensor(data, np.float32)
    kind = accumulator(x)
    bits = 31 if kind == INT32 else 47
    stored = np.clip(np.round(data / units), -(2**bits), 2**bits - 1)
    return low.tensor(stored, kind)


def fit(low: TosaLowering, x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
        pad: Sequence[int]) -> tuple[Value, list[int]]:  # fmt: skip
    """An image and padding that windows cover exactly: what they do not reach is taken off, as TOSA asks."""
    pads, shape = list(pad), list(x.bound)
    for axis in (0, 1):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        left = (shape[1 + axis] + pads[2 * axis] + pads[2 * axis + 1] - reach) % stride[axis]
        less = min(left, max(pads[2 * axis + 1], 0))
        pads[2 * axis + 1] -= less
        shape[1 + axis] -= left - less
    return low.sliced(x, [0, 0, 0, 0], shape), pads


def two(values: Sequence[int], fill: int) -> list[int]:
    """Strides and the like of a sequence, as of an image one pixel high."""
    given = list(values)
    return [fill, given[0]] if len(given) == 1 else given


def convolution(low: TosaLowering, op: Op) -> None:
    """Images, and sequences as images one pixel high."""
    x, out = op.args["input"], result(op)
    if len(x.shape) == 3:
        image = low.get(x, NLC)
        flat = low.reshaped(image, [image.bound[0], 1, *image.bound[1:]])
        acc, units = _product(low, op, flat)
        low.finish(op, NLC, low.reshaped(acc, [acc.bound[0], *acc.bound[2:]]), units)
    else:
        acc, units = _product(low, op, low.get(x, NHWC))
        low.finish(op, NHWC, acc, units)
    assert len(out.shape) == len(x.shape)


def _product(low: TosaLowering, op: Op, image: Value) -> tuple[Value, Array]:
    """The accumulator, and what a unit of each of its channels is worth."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    data = weight.data if weight.data.ndim == 4 else weight.data[:, :, None, :]
    units = scale_of(x) * weight_scales(weight)
    dtype = accumulator(x)
    args: dict[str, Any] = {"input_zp": zero_of(x), "weight_zp": 0}
    size = [1, *out.bound[2:]] if len(out.shape) == 3 else list(out.bound[2:])
    shape = [image.bound[0], *size, out.bound[1]]
    if op.args["transposed"]:
        return _transposed(low, op, image, data, shape, units, args), units
    stride, dilation = two(op.args["stride"], 1), two(op.args["dilation"], 1)
    top, left = two(op.args["padding"], 0)
    image, pads = fit(low, image, data.shape[2:], stride, dilation, [top, top, left, left])
    args |= {"input": image, "bias": bias_of(low, op, units, data.shape[0]), "pad": pads, "stride": stride,
             "dilation": dilation}  # fmt: skip
    if op.args["groups"] > 1 and data.shape[1] == 1:
        groups = op.args["groups"]
        each = data.shape[0] // groups
        taps = data[:, 0].reshape(groups, each, *data.shape[2:]).transpose(2, 3, 0, 1)
        return low.node("depthwise_conv2d", shape, dtype, weight=low.tensor(taps), **args), units
    return low.node("conv2d", shape, dtype, weight=low.tensor(data.transpose(0, 2, 3, 1)), **args), units


def _transposed(
    low: TosaLowering, op: Op, image: Value, data: Array, shape: list[int], units: Array, args: dict[str, Any]
) -> Value:
    """Filters come as input, output, height, width. What padding takes off, and what is added at the end, is
    TOSA's padding of the result."""
    top, left = two(op.args["padding"], 0)
    stride = two(op.args["stride"], 1)
    kernel = data.shape[2:]
    bottom, right = (shape[1 + a] - ((image.bound[1 + a] - 1) * stride[a] + kernel[a] - (top, left)[a]) for a in (0, 1))
    weight = low.tensor(data.transpose(1, 2, 3, 0))
    bias = bias_of(low, op, units, data.shape[1])
    return low.node("transpose_conv2d", shape, accumulator(op.args["input"]), input=image, weight=weight, bias=bias,
                    out_pad=[-top, bottom, -left, right], stride=stride, **args)  # fmt: skip


def linear(low: TosaLowering, op: Op) -> None:
    """A matrix product with constant weights is a convolution of one pixel."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    held, columns = flat_rows(low, x)
    count = int(np.prod(held.bound[:-1]))
    data = weight.data if columns is None else weight.data[:, columns]
    image = low.reshaped(held, [1, count, 1, data.shape[1]])
    units = scale_of(x) * weight_scales(weight)
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
    return low.get(x), None


def matmul(low: TosaLowering, op: Op) -> None:
    """Two matrices, or as many pairs, that are both computed."""
    a, b, out = op.args["self"], op.args["mat2"], result(op)
    left, right = (low.get(v) for v in (a, b))
    pairs = [low.reshaped(v, [1] * (3 - len(v.bound)) + list(v.bound)) for v in (left, right)]
    shape = [pairs[0].bound[0], pairs[0].bound[1], pairs[1].bound[2]]
    acc = low.node("matmul", shape, accumulator(a), a=pairs[0], b=pairs[1], a_zp=zero_of(a), b_zp=zero_of(b))
    made = low.narrow(acc, out, scale_of(a) * scale_of(b), op.args.get("limits"))
    low.alias(out, identity(len(out.shape)), low.reshaped(made, sizes(out)))
