"""Lowering of convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.nxp.dialect.table import VALID
from edgewright.backends.nxp.lower import INT8, INT32, NeutronLowering, output, scale_of, zero_point
from edgewright.backends.table import conv_argument, conv_kernel, conv_padding
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.lowering.passes.layout import Order, identity


def is_depthwise(op: Op) -> bool:
    weight, groups = op.args["weight"], op.args["groups"]
    return bool(groups > 1 and weight.bound[1] == 1 and weight.bound[0] == groups)


# --------------------------------------------------------------------------------------------------- convolutions


def image_order(op: Op) -> Order:
    """Channels-last dimension order, with or without a batch."""
    rank, batched = len(op.args["weight"].shape), len(op.args["input"].shape) == len(op.args["weight"].shape)
    order = (0, *range(2, rank), 1)
    return order if batched else tuple(d - 1 for d in order[1:])


def convolution(low: NeutronLowering, op: Op) -> None:
    x, out, order = op.args["input"], output(op), image_order(op)
    x_value = low.get(x, order)
    shape = list(x_value.bound)
    shape = shape if len(x.shape) == len(op.args["weight"].shape) else [1, *shape]
    image = low.reshape(x_value, [shape[0], 1, *shape[1:]] if len(shape) == 3 else shape)
    data = op.args["weight"].data
    data = data[:, :, None, :] if data.ndim == 3 else data
    result = _transpose_conv(low, op, image, data) if op.args["transposed"] else _forward_conv(low, op, image, data)
    low.finish(op, order, low.reshape(result, [out.bound[d] for d in order]))


def _forward_conv(low: NeutronLowering, op: Op, image: Value, data: Array) -> Value:
    image = low.pad(image, [(0, 0), *conv_padding(op), (0, 0)], zero_point(op.args["input"]))
    groups = op.args["groups"]
    if groups == 1 or is_depthwise(op):
        return _conv_node(low, op, image, data, slice(None))
    group_inputs, out = image.bound[-1] // groups, data.shape[0] // groups
    results = []
    for g in range(groups):
        group_image = low.slice(image, [0, 0, 0, g * group_inputs], [*image.bound[:3], group_inputs])
        results.append(_conv_node(low, op, group_image, data[g * out : (g + 1) * out], slice(g * out, (g + 1) * out)))
    shape = [*results[0].bound[:3], data.shape[0]]
    return low.node("CONCATENATION", shape, output(op).q, results, axis=3)


def _conv_node(low: NeutronLowering, op: Op, image: Value, data: Array, channels: slice) -> Value:
    stride, dilation = conv_argument(op, "stride", 1), conv_argument(op, "dilation", 1)
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(image.bound[1:3], data.shape[2:], dilation, stride, strict=True)
    ]
    depthwise = is_depthwise(op)
    filters = data.transpose(1, 2, 3, 0) if depthwise else data.transpose(0, 2, 3, 1)
    options: dict[str, Any] = {
        "padding": VALID, "stride_h": stride[0], "stride_w": stride[1], "dilation_h": dilation[0],
        "dilation_w": dilation[1], **({"depth_multiplier": 1} if depthwise else {}),
    }  # fmt: skip
    operands = [
        image,
        weight_constant(low, op, filters, 3 if depthwise else 0, channels),
        conv_bias(low, op, data.shape[0], channels),
    ]
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    return low.node(kind, [image.bound[0], *size, data.shape[0]], output(op).q, operands, **options)


def _transpose_conv(low: NeutronLowering, op: Op, image: Value, data: Array) -> Value:
    """Compute the full output, then crop the padding. The filter is IOHW."""
    stride, out = conv_argument(op, "stride", 1), output(op)
    full_size = [(n - 1) * s + k for n, s, k in zip(image.bound[1:3], stride, data.shape[2:], strict=True)]
    shape = [image.bound[0], *full_size, data.shape[1]]
    filters = weight_constant(low, op, data.transpose(1, 2, 3, 0), 0, slice(None))
    operands = [low.int_constant(shape), filters, image, conv_bias(low, op, data.shape[1], slice(None))]
    full_output = low.node(
        "TRANSPOSE_CONV", shape, out.q, operands, padding=VALID, stride_h=stride[0], stride_w=stride[1]
    )
    size = out.bound[-2:] if len(op.args["weight"].shape) == 4 else (1, out.bound[-1])
    return low.slice(full_output, [0, *conv_argument(op, "padding", 0), 0], [shape[0], *size, shape[3]])


def accumulator_scale(op: Op, weight: Value, channels: slice = slice(None)) -> Array:
    """The accumulator's scale: product of input and weight scales, in float32 as stored in files."""
    x = op.args["input"] if "input" in op.args else op.args.get("mat1", op.args["self"])
    assert weight.q is not None
    scales = np.asarray(weight.q.scale, np.float32)
    return np.float64(scale_of(x)) * (scales[channels] if scales.ndim else scales).astype(np.float64)


def weight_constant(low: NeutronLowering, op: Op, data: Array, axis: int, channels: slice) -> Value:
    q = op.args["weight"].q
    scales = np.asarray(q.scale, np.float64)
    if scales.ndim:
        part = scales[channels]
        return low.quantized_constant(data, QParams(tuple(part.tolist()), (0,) * part.size, INT8, -127, 127, axis=axis))
    return low.quantized_constant(data, QParams(float(scales), 0, INT8, -127, 127))


def conv_bias(low: NeutronLowering, op: Op, count: int, channels: slice) -> Value:
    """The bias, int32 at the accumulator's scale."""
    units = accumulator_scale(op, op.args["weight"], channels)
    return bias_constant(low, op.args.get("bias"), units, count, channels)


def bias_constant(low: NeutronLowering, bias: Value | None, units: Array, count: int, channels: slice) -> Value:
    data = np.zeros(count) if bias is None else np.asarray(bias.data, np.float64).reshape(-1)[channels]
    if bias is not None and bias.q is not None:
        zero, scale = (np.asarray(v, np.float64) for v in (bias.q.zero_point, bias.q.scale))
        data = (data - (zero[channels] if zero.ndim else zero)) * (scale[channels] if scale.ndim else scale)
    info = np.iinfo(INT32)
    quantized = np.clip(np.round(data / units), info.min, info.max)
    scales = units.astype(np.float32).astype(np.float64)
    if scales.ndim:
        q = QParams(tuple(scales.tolist()), (0,) * scales.size, INT32, info.min, info.max, axis=0)
    else:
        q = QParams(float(scales), 0, INT32, info.min, info.max)
    return low.quantized_constant(quantized, q)


# ------------------------------------------------------------------------------------------------ matrix products


def linear(low: NeutronLowering, op: Op) -> None:
    """Weights are ``[output, input]``."""
    _fully_connected(low, op, op.args["input"], op.args["weight"], op.args["weight"].data, op.args.get("bias"))


def mm(low: NeutronLowering, op: Op) -> None:
    """``mm`` and ``addmm``; weights are ``[input, output]``."""
    x, weight = op.args.get("mat1", op.args["self"]), op.args["mat2"]
    _fully_connected(low, op, x, weight, weight.data.T, op.args["self"] if op.kind == "addmm" else None)


def _fully_connected(low: NeutronLowering, op: Op, x: Value, weight: Value, data: Array, bias: Value | None) -> None:
    out = output(op)
    x_value, columns = low.flat.get(x) or (low.get(x), None)
    data = data if columns is None else data[:, columns]
    rows = low.reshape(x_value, [int(np.prod(x_value.bound[:-1])), data.shape[1]])
    assert weight.q is not None
    scale = np.float64(np.asarray(weight.q.scale, np.float64).reshape(()))
    filters = low.quantized_constant(data, QParams(float(scale), 0, INT8, -127, 127))
    operands = [rows, filters, bias_constant(low, bias, accumulator_scale(op, filters), data.shape[0], slice(None))]
    result = low.node("FULLY_CONNECTED", [rows.bound[0], data.shape[0]], out.q, operands, keep_num_dims=True)
    low.finish(op, identity(len(out.shape)), low.reshape(result, out.bound))


def bmm(low: NeutronLowering, op: Op) -> None:
    out = output(op)
    product = low.node("BATCH_MATMUL", out.bound, out.q, [low.get(op.args["self"]), low.get(op.args["mat2"])])
    low.finish(op, identity(len(out.shape)), product)


def window_params(op: Op) -> Sequence[int]:
    """The parameters of a convolution that Neutron encodes in 12 bits."""
    return [*conv_kernel(op), *conv_argument(op, "stride", 1), *conv_argument(op, "dilation", 1)]
