"""Lowering of convolutions and matrix products.

A transposed convolution becomes one regular convolution per row phase. Vela estimates 0.26 to 0.8 of the cycles of
TOSA's TRANSPOSE_CONV2D, which multiplies inserted zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
from edgewright.backends.ethos_u.rules import on_family
from edgewright.backends.ethos_u.split_conv import exceeds_max_stride, is_transposed
from edgewright.backends.table import conv_argument, conv_padding
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import identity


def accumulator_scales(op: Op) -> Array:
    """Scale of the accumulator per output channel: input scale times weight scale."""
    weight = op.args["weight"]
    return np.asarray(scale_of(op.args["input"]) * np.asarray(weight.q.scale if weight.q is not None else 1.0))


def accumulator_type(value: Value) -> Any:
    if value.q is None:
        return FLOAT32
    return INT48 if value.q.dtype.itemsize == 2 else INT32


def quantized_bias(low: TosaLowering, op: Op, units: Array, channels: int) -> Value:
    """The bias in units of the accumulator."""
    bias, x = op.args.get("bias"), op.args["input"]
    data = np.zeros(channels) if bias is None else np.asarray(bias.data, np.float64)
    if bias is not None and bias.q is not None:
        data = (data - np.asarray(bias.q.zero_point)) * np.asarray(bias.q.scale)
    if x.q is None:
        return low.const(data, np.float32)
    kind = accumulator_type(x)
    bits = 31 if kind == INT32 else 47
    quantized = np.clip(np.round(data / units), -(2**bits), 2**bits - 1)
    return low.const(quantized, kind)


def transposed_convolution(low: TosaLowering, op: Op, image: Value, data: Array) -> Value:
    """The NHWC result. Filters are input, output, height, width."""
    stride = conv_argument(op, "stride", 1)
    data = dilate_filters(data, conv_argument(op, "dilation", 1))
    bias = quantized_bias(low, op, accumulator_scales(op), data.shape[1])
    padding = conv_argument(op, "padding", 0)
    size = [1, *result(op).bound[-1:]] if len(op.args["weight"].shape) == 3 else list(result(op).bound[-2:])
    return _phase_convolutions(low, op, image, data, bias, stride, padding, size)


def dilate_filters(data: Array, dilation: Sequence[int]) -> Array:
    """Insert zeros between the taps."""
    if list(dilation) == [1, 1]:
        return data
    kernel = [(k - 1) * d + 1 for k, d in zip(data.shape[2:], dilation, strict=True)]
    dilated = np.zeros((*data.shape[:2], *kernel), data.dtype)
    dilated[:, :, :: dilation[0], :: dilation[1]] = data
    return dilated


def _phase_convolutions(
    low: TosaLowering, op: Op, image: Value, data: Array, bias: Value, stride: list[int], padding: list[int],
    size: list[int],
) -> Value:  # fmt: skip
    """Every ``stride``-th output pixel is a regular convolution with every ``stride``-th tap (sub-pixel convolution).

    The column phases of a row are output channels of one convolution, so a reshape interleaves them. Row phases are
    concatenated along the width, so another reshape makes them rows.
    """
    n, (sy, sx), out = image.bound[0], stride, data.shape[1]
    min_taps = [max(0, padding[a] + size[a] - (image.bound[1 + a] - 1) * stride[a]) for a in (0, 1)]
    taps = [-(-max(data.shape[2 + a], min_taps[a]) // stride[a]) for a in (0, 1)]
    padded = np.zeros((*data.shape[:2], taps[0] * sy, taps[1] * sx), data.dtype)
    padded[:, :, : data.shape[2], : data.shape[3]] = data
    high, wide = image.bound[1] + taps[0] - 1, image.bound[2] + taps[1] - 1
    pads = [taps[0] - 1, taps[0] - 1, taps[1] - 1, taps[1] - 1]
    units = np.tile(accumulator_scales(op), sx) if accumulator_scales(op).size > 1 else accumulator_scales(op)
    biases = low.const(np.tile(np.asarray(bias.data), sx))
    dtype, rows = accumulator_type(op.args["input"]), []
    for y in range(sy):
        phases = [padded[:, :, y::sy, x::sx][:, :, ::-1, ::-1].transpose(1, 2, 3, 0) for x in range(sx)]
        args: dict[str, Any] = {"input_zp": zero_of(op.args["input"]), "weight_zp": 0, "stride": [1, 1]}
        acc = low.node("conv2d", [n, high, wide, sx * out], dtype, input=image, bias=biases,
                       weight=low.const(np.concatenate(phases)), pad=pads, dilation=[1, 1], **args)  # fmt: skip
        row_phase = low.requantize(acc, result(op), units, op.args.get("limits"))
        rows.append(low.reshape(row_phase, [n, high, wide * sx, out]))
    row_phases = rows[0]
    if sy > 1:
        row_phases = low.node("concat", [n, high, sy * wide * sx, out], row_phases.dtype, inputs=rows, axis=2)
    interleaved = low.reshape(row_phases, [n, high * sy, wide * sx, out])
    return low.slice(interleaved, [0, *padding, 0], [n, *size, out])


def trim_unread(low: TosaLowering, x: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
        pad: Sequence[int]) -> tuple[Value, list[int]]:  # fmt: skip
    """Crop the image and padding to what windows cover: TOSA requires an exact fit."""
    pads, shape = list(pad), list(x.bound)
    for axis in range(len(kernel)):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        unread = (shape[1 + axis] + pads[2 * axis] + pads[2 * axis + 1] - extent) % stride[axis]
        cropped = min(unread, max(pads[2 * axis + 1], 0))
        pads[2 * axis + 1] -= cropped
        shape[1 + axis] -= unread - cropped
    return low.slice(x, [0] * len(shape), shape), pads


def convolution(low: TosaLowering, op: Op) -> None:
    """1-D, 2-D and 3-D convolutions; 1-D inputs are images of height one, an unbatched input a batch of one. Where the
    NPU convolves images only, the planes of a volume are its images."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    rank = weight.data.ndim
    order = tuple(d for d in (0, *range(2, rank), 1))
    order = order if len(x.shape) == rank else tuple(d - 1 for d in order[1:])  # unbatched
    image = low.get(x, order)
    shape = [*([1] if len(x.shape) < rank else []), *image.bound]
    image = low.reshape(image, [shape[0], 1, *shape[1:]] if rank == 3 else shape)
    data = weight.data[:, :, None, :] if rank == 3 else weight.data
    planes = rank == 5 and not on_family(low.target, "u85")
    convolve = transposed_convolution if is_transposed(op) else _convolve_planes if planes else _convolve
    conv = convolve(low, op, image, data)
    low.alias(out, order, low.reshape(conv, [out.bound[d] for d in order]))


def _convolve_planes(low: TosaLowering, op: Op, image: Value, data: Array) -> Value:
    """A convolution of volumes for NPUs that convolve images only: every output plane is an image, and the input planes
    that it reads are its channels. Input and result are NDHWC."""
    (stride, *strides), (dilation, *dilations) = (conv_argument(op, name, 1) for name in ("stride", "dilation"))
    (front, back), *pads = conv_padding(op)
    if front or back:
        image = pad_image(low, image, [front, back, 0, 0, 0, 0], zero_of(op.args["input"]))
    taps = data.shape[2]
    count = (image.bound[1] - (taps - 1) * dilation - 1) // stride + 1
    read = [_every_plane(low, image, tap * dilation, count, stride) for tap in range(taps)]
    n, depth, *size, channels = read[0].bound
    shape = [n, depth, *size, taps * channels]
    joined = read[0] if taps == 1 else low.node("concat", shape, image.dtype, inputs=read, axis=4)
    images = low.reshape(joined, [n * depth, *size, taps * channels])
    filters = data.transpose(0, 2, 1, 3, 4).reshape(data.shape[0], taps * data.shape[1], *data.shape[3:])
    weight = replace(op.args["weight"], shape=filters.shape, data=filters)
    args = {**op.args, "weight": weight, "stride": strides, "dilation": dilations}
    convolved = _convolve(low, replace(op, args=args), images, filters, [side for both in pads for side in both])
    return low.reshape(convolved, [n, depth, *convolved.bound[1:]])


def _every_plane(low: TosaLowering, image: Value, start: int, count: int, stride: int) -> Value:
    """``count`` planes of a volume, NDHWC, ``stride`` apart."""
    n, planes, height, *rest = image.bound
    if stride == 1:
        return low.slice(image, [0, start, 0, 0, 0], [n, count, height, *rest])
    missing = max(0, start + count * stride - planes)
    if missing:  # behind the last plane, never read
        image = pad_image(low, image, [0, missing, 0, 0, 0, 0], 0)
    read = low.slice(image, [0, start, 0, 0, 0], [n, count * stride, height, *rest])
    rows = low.reshape(read, [n, count, stride * height, *rest])
    return low.slice(rows, [0] * 5, [n, count, height, *rest])


def _convolve(low: TosaLowering, op: Op, image: Value, data: Array, padding: Sequence[int] | None = None) -> Value:
    """``padding``: that of the image, in place of the operator's."""
    x = op.args["input"]
    units = accumulator_scales(op)
    stride, dilation = conv_argument(op, "stride", 1), conv_argument(op, "dilation", 1)
    if (
        exceeds_max_stride(op, low.target) and data.ndim == 4 and not is_depthwise(op)
    ):  # Vela does not split long strides with dilation
        data, dilation = dilate_filters(data, dilation), [1, 1]
    pads = [side for both in conv_padding(op) for side in both] if padding is None else list(padding)
    image, pads = trim_unread(low, image, data.shape[2:], stride, dilation, pads)
    if any(pads) and exceeds_max_stride(op, low.target):  # Vela splits long strides only without padding
        image, pads = pad_image(low, image, pads, zero_of(x)), [0] * len(pads)
    size = [
        (image.bound[1 + a] + pads[2 * a] + pads[2 * a + 1] - (k - 1) * dilation[a] - 1) // stride[a] + 1
        for a, k in enumerate(data.shape[2:])
    ]
    args: dict[str, Any] = {
        "input": image, "input_zp": zero_of(x), "weight_zp": 0, "pad": pads, "stride": stride, "dilation": dilation,
        "bias": quantized_bias(low, op, units, data.shape[0]),
    }  # fmt: skip
    shape, dtype = [image.bound[0], *size, data.shape[0]], accumulator_type(x)
    if is_depthwise(op):
        groups = op.args["groups"]
        taps = data[:, 0].reshape(groups, -1, *data.shape[2:]).transpose(2, 3, 0, 1)
        acc = low.node("depthwise_conv2d", shape, dtype, weight=low.const(taps), **args)
    else:
        filters = low.const(np.moveaxis(data, 1, -1))
        acc = low.node("conv3d" if data.ndim == 5 else "conv2d", shape, dtype, weight=filters, **args)
    return low.requantize(acc, result(op), units, op.args.get("limits"))


def pad_image(low: TosaLowering, image: Value, pads: Sequence[int], value: int) -> Value:
    """Materialize the padding of an image; ``pads``: two per spatial dimension."""
    padding = [0, 0, *pads, 0, 0]
    shape = [n + padding[2 * i] + padding[2 * i + 1] for i, n in enumerate(image.bound)]
    return low.node("pad", shape, image.dtype, input=image, value=low.const([value], image.dtype), padding=padding)


def is_depthwise(op: Op) -> bool:
    return bool(op.args["groups"] > 1 and op.args["weight"].shape[1] == 1 and not is_transposed(op))


def linear(low: TosaLowering, op: Op) -> None:
    """A matrix product with constant weights is a 1x1 convolution."""
    x, weight, out = op.args["input"], op.args["weight"], result(op)
    rows, columns = flattened_rows(low, x)
    count = int(np.prod(rows.bound[:-1]))
    data = weight.data if columns is None else weight.data[:, columns]
    image = low.reshape(rows, [1, count, 1, data.shape[1]])
    units = accumulator_scales(op)
    acc = low.node(
        "conv2d", [1, count, 1, data.shape[0]], accumulator_type(x), input=image,
        weight=low.const(data[:, None, None, :]), bias=quantized_bias(low, op, units, data.shape[0]),
        input_zp=zero_of(x), weight_zp=0, pad=[0] * 4, stride=[1, 1], dilation=[1, 1],
    )  # fmt: skip
    low.alias(
        out,
        identity(len(out.shape)),
        low.reshape(low.requantize(acc, out, units, op.args.get("limits")), static_sizes(out)),
    )


def flattened_rows(low: TosaLowering, x: Value) -> tuple[Value, Array | None]:
    """Matrix operand and, for a flattened channels-last image, the order of its columns."""
    flat = low.flat.get(x)
    return flat if flat is not None else (low.get(x), None)


def matmul(low: TosaLowering, op: Op) -> None:
    """Product of two computed matrices, or batches of them."""
    a, b, out = op.args["self"], op.args["mat2"], result(op)
    left, right = (low.get(v) for v in (a, b))
    pairs = [low.reshape(v, [1] * (3 - len(v.bound)) + list(v.bound)) for v in (left, right)]
    shape = [pairs[0].bound[0], pairs[0].bound[1], pairs[1].bound[2]]
    acc = low.node("matmul", shape, accumulator_type(a), a=pairs[0], b=pairs[1], a_zp=zero_of(a), b_zp=zero_of(b))
    requantized = low.requantize(acc, out, scale_of(a) * scale_of(b), op.args.get("limits"))
    low.alias(out, identity(len(out.shape)), low.reshape(requantized, static_sizes(out)))
