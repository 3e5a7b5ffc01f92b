"""Translation of QNN's convolutions and matrix products to core operators.

Int8 products are rounded as ``numerics.py`` says, so they become core operators; int16 ones carry a ``scaling``
(``ir/requant_scale.py``: a float64 factor and one rounding). 3D convolutions and average pooling become 2D: the planes
of a window become image channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.conv import accumulator_bias, accumulator_scale, integer_weights
from edgewright.backends.qualcomm.dialect.dtypes import quantize_array, round_to_fp16
from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.backends.qualcomm.dialect.reduce import element_counts
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    QnnRewrite,
    as_int16,
    convert_to,
    element_count,
    io_of,
    is_float32,
    is_int8,
    is_quantized,
    make_constant,
    non_empty,
    result_of,
    rule,
    same_type,
)  # fmt: skip
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import as_float32
from edgewright.ir.requant_scale import FloatScale, product_scale

_INT8, _INT16 = np.dtype(np.int8), np.dtype(np.int16)
_MAX_DENSE_WEIGHTS = 1 << 24  # elements up to which grouped filters are expanded to dense ones
Limits = tuple[float, float]


def fuse_activation(rw: QnnRewrite, op: Op) -> tuple[Limits | None, Value]:
    """Fuse a following activation of the same scale: its limits, and the last result."""
    out = result_of(op)
    activation = rw.only_reader(out)
    if activation is None or not same_type(out, result_of(activation)):
        return None, out
    if activation.kind == f"{PREFIX}Relu":
        limits = (0.0, float("inf"))
    elif activation.kind == f"{PREFIX}ReluMinMax":
        limits = (float(activation.args["min_value"]), float(activation.args["max_value"]))
    else:
        return None, out
    if out.q is not None and not _same_limits(out.q, limits):
        return None, out
    rw.done.add(activation)
    return limits, result_of(activation)


def _same_limits(q: QParams, limits: Limits) -> bool:
    """Whether clamping quantized values equals clamping real values and quantizing."""
    quantized_limits = quantize_array(np.array(limits, np.float32), q)
    return QNN.limits(q, limits) == (int(quantized_limits[0]), int(quantized_limits[1]))


@dataclass
class ConvOperands:
    """Weights as [window..., inputs, outputs], bias, and requantization arguments of a convolution."""

    x: Value
    weights: Array
    scales: Array | None  # per output channel, of quantized weights
    bias: Array | None
    out: Value
    requant: dict[str, Any]

    def filters(self, data: Array, channels: int) -> Value:
        """A constant of the weights in the given order; ``channels`` is the dimension of output channels."""
        data = np.ascontiguousarray(data)
        if self.scales is None:
            return make_constant("weight", data)
        dtype = _INT8 if np.abs(data).max(initial=0) < 128 else _INT16
        low, high = (int(n) for n in (np.iinfo(dtype).min, np.iinfo(dtype).max))
        per_channel = self.scales.size > 1
        scale: Any = tuple(self.scales.tolist()) if per_channel else float(self.scales[0])
        q = QParams(
            scale, (0,) * self.scales.size if per_channel else 0, dtype, low, high, channels if per_channel else None
        )
        return make_constant("weight", data.astype(dtype), q)

    @property
    def is_int16_conv(self) -> bool:
        return "scaling" in self.requant

    def needs_dense(self, groups: int, group_outputs: int) -> bool:
        """Whether no kernel has these groups, and dense filters are small enough to replace them."""
        uneven = self.scales is not None and (self.is_int16_conv or group_outputs % 16 != 0)
        return groups > 1 and uneven and self.weights.size * groups <= _MAX_DENSE_WEIGHTS


def conv_operands(rw: QnnRewrite, op: Op, tiles: int = 1) -> ConvOperands | None:
    """The operands of a convolution; None if it is not supported. ``tiles``: groups that share their scales."""
    (x, w, *bias_values), out = io_of(op)
    if not non_empty(x, w, out) or w.data is None or any(b.data is None for b in bias_values):
        return None
    if is_float32(x, w, out, *bias_values):
        bias = None if not bias_values else round_to_fp16(np.asarray(bias_values[0].data)).reshape(-1)
        return ConvOperands(rw.round_half(op, x), round_to_fp16(w.data), None, bias, out, {})
    if not is_quantized(x, out) or w.q is None or w.q.dtype.itemsize > 2:
        return None
    weights, scales = integer_weights(w, w.data)
    scales = np.tile(scales, tiles) if scales.size > 1 else scales
    units = as_float32(x.q.scale).astype(np.float64) * scales.astype(np.float64)  # type: ignore[union-attr]
    bias = accumulator_bias(bias_values[0], np.asarray(bias_values[0].data), units) if bias_values else None
    limits, result = fuse_activation(rw, op)
    fits_int32 = bias is None or np.abs(bias).max(initial=0) < 1 << 31
    if is_int8(x) and is_int8(out) and int(np.abs(weights).max(initial=0)) <= 127 and fits_int32:
        return ConvOperands(x, weights, scales, bias, result, {"limits": limits})
    scaling = _with_limits(accumulator_scale(x, scales, out), out, limits)
    x = convert_to(rw, op, x, as_int16(x))  # if weights or the result are wider
    return ConvOperands(x, weights, scales, bias, result, {"scaling": scaling})


def _with_limits(scaling: FloatScale, out: Value, limits: Limits | None) -> FloatScale:
    assert out.q is not None
    low, high = QNN.limits(out.q, limits)
    return replace(scaling, low=low, high=high)


def emit_conv(rw: QnnRewrite, kind: str, op: Op, p: ConvOperands, out: Value, /, **args: Any) -> None:
    """Emit a convolution; float results are rounded to fp16, and 8-bit results of 16-bit operands converted."""
    bias = None
    if p.bias is not None:
        dtype = np.float32 if p.scales is None else np.int64 if p.is_int16_conv else np.int32
        repeats = np.resize(p.bias, out.bound[-1])
        bias = make_constant("bias", repeats.astype(dtype))
    if p.scales is None:
        rw.emit_rounded(kind, op, out, bias=bias, **args)
    elif p.is_int16_conv and is_int8(out):
        wide = rw.emit_temporary(kind, op, as_int16(out), out.bound, bias=bias, **args, **p.requant)
        rw.emit("qnn.Convert", op, out, inputs=[wide])
    else:
        rw.emit(kind, op, out, bias=bias, **args, **p.requant)


def emit_conv2d(rw: QnnRewrite, op: Op, p: ConvOperands, x: Value, weights: Array, out: Value, groups: int,
          window: dict[str, Any]) -> None:  # fmt: skip
    """Emit a 2D convolution with weights [height, width, inputs, outputs]."""
    inputs, outputs = weights.shape[2:]
    if inputs == 1 and groups == x.bound[-1] == outputs:
        depthwise_filters = p.filters(weights.transpose(2, 0, 1, 3), 3)
        emit_conv(rw, "core.depthwise_conv2d", op, p, out, input=x, weight=depthwise_filters, groups=groups, **window)
        return
    data = weights.transpose(3, 0, 1, 2)
    if p.needs_dense(groups, outputs // groups):
        data, groups = dense_filters(data, groups), 1
    emit_conv(rw, "core.conv2d", op, p, out, input=x, weight=p.filters(data, 0), groups=groups, **window)


def dense_filters(data: Array, groups: int) -> Array:
    """Expand grouped filters to all input channels, with zeros: [outputs, height, width, inputs]."""
    outputs, high, wide, inputs = data.shape
    dense = np.zeros((outputs, high, wide, inputs * groups), data.dtype)
    group_outputs = outputs // groups
    for g in range(groups):
        span = slice(g * group_outputs, (g + 1) * group_outputs)
        dense[span, ..., g * inputs : (g + 1) * inputs] = data[span]
    return dense


@rule("Conv2d", "DepthWiseConv2d")
def _convolution(rw: QnnRewrite, op: Op) -> bool:
    p = conv_operands(rw, op)
    if p is None:
        return False
    groups = p.x.bound[-1] if op.kind.endswith("DepthWiseConv2d") else int(op.args["group"])
    pads = [n for pair in op.args["pad_amount"] for n in pair]
    window = {"stride": list(op.args["stride"]), "padding": pads, "dilation": list(op.args["dilation"])}
    emit_conv2d(rw, op, p, p.x, p.weights, p.out, groups, window)
    return True


@rule("TransposeConv2d")
def _transposed(rw: QnnRewrite, op: Op) -> bool:
    groups = int(op.args["group"])
    p = conv_operands(rw, op, groups)
    if p is None:
        return False
    data = transposed_filters(p.weights, groups)
    if p.needs_dense(groups, p.weights.shape[-1]):
        data, groups = dense_filters(data, groups), 1
    emit_conv_transpose2d(rw, op, p, p.x, data, p.out, groups)
    return True


def transposed_filters(weights: Array, groups: int) -> Array:
    """Filters of a transposed convolution, [height, width, inputs, outputs per group], with output channels first."""
    high, wide, inputs, outputs = weights.shape
    split = weights.reshape(high, wide, groups, inputs // groups, outputs)
    return split.transpose(2, 4, 0, 1, 3).reshape(groups * outputs, high, wide, inputs // groups)


def emit_conv_transpose2d(
    rw: QnnRewrite, op: Op, p: ConvOperands, x: Value, data: Array, out: Value, groups: int
) -> None:
    """Emit a transposed 2D convolution with filters by output channel."""
    steps, output_padding = (list(op.args[name])[-2:] for name in ("stride", "output_padding"))
    pads = [n for pair in op.args["pad_amount"][-2:] for n in pair]
    if p.is_int16_conv:
        _emit_int16_transposed(rw, op, p, x, data, out, groups, (steps, pads, output_padding))
    else:
        emit_conv(rw, "core.conv_transpose2d", op, p, out, input=x, weight=p.filters(data, 0), groups=groups,
                     stride=steps, padding=pads, dilation=[1, 1], output_padding=output_padding)  # fmt: skip


def _emit_int16_transposed(rw: QnnRewrite, op: Op, p: ConvOperands, x: Value, data: Array, out: Value, groups: int,
            window: tuple[list[int], list[int], list[int]]) -> None:  # fmt: skip
    """Int16: a plain convolution over the zero-upsampled image."""
    ((stride_y, stride_x), pads, output_padding), (images, high, wide, channels) = window, x.bound
    spaced = rw.reshape(op, x, (images, high, 1, wide, 1, channels))
    spaced = rw.pad(op, spaced, [(0, 0), (0, 0), (0, stride_y - 1), (0, 0), (0, stride_x - 1), (0, 0)])
    upsampled = rw.reshape(op, spaced, (images, high * stride_y, wide * stride_x, channels))
    upsampled = rw.slice(
        op, upsampled, [0] * 4, (images, (high - 1) * stride_y + 1, (wide - 1) * stride_x + 1, channels)
    )
    upsampled, padding = _crop_and_pad(rw, op, upsampled, data.shape[1:3], pads, output_padding)
    emit_conv(rw, "core.conv2d", op, p, out, input=upsampled, weight=p.filters(data[:, ::-1, ::-1], 0),
                 groups=groups, stride=[1, 1], padding=padding, dilation=[1, 1])  # fmt: skip


def _crop_and_pad(rw: QnnRewrite, op: Op, x: Value, sizes: Sequence[int], pads: Sequence[int],
             output_padding: Sequence[int]) -> tuple[Value, list[int]]:  # fmt: skip
    """Crop pixels that padding larger than the window excludes, and return the remaining padding."""
    padding = [
        sizes[side // 2] - 1 - pad + (output_padding[side // 2] if side % 2 else 0) for side, pad in enumerate(pads)
    ]
    cropped = [max(-n, 0) for n in padding]
    length = (x.bound[0], x.bound[1] - cropped[0] - cropped[1], x.bound[2] - cropped[2] - cropped[3], x.bound[3])
    return rw.slice(op, x, [0, cropped[0], cropped[2], 0], length), [max(n, 0) for n in padding]


@rule("FullyConnected")
def _linear(rw: QnnRewrite, op: Op) -> bool:
    p = conv_operands(rw, op)
    if p is None:
        return False
    depth, rows = p.weights.shape[1], element_count(p.x.bound) // p.weights.shape[1]
    if p.is_int16_conv:
        flat = rw.temporary(p.out, (1, 1, rows, p.weights.shape[0]))
        x, weight = rw.reshape(op, p.x, (1, 1, rows, depth)), p.filters(p.weights[:, None, None, :], 0)
        emit_conv(rw, "core.conv2d", op, p, flat, input=x, weight=weight, groups=1, stride=[1, 1], padding=[0] * 4,
                     dilation=[1, 1])  # fmt: skip
        rw.emit_reshape(op, flat, p.out)
        return True
    emit_conv(rw, "core.linear", op, p, p.out, input=rw.reshape(op, p.x, (rows, depth)), weight=p.filters(p.weights, 0))
    return True


@rule("MatMul")
def _matmul(rw: QnnRewrite, op: Op) -> bool:
    operands, out = io_of(op)
    if (
        len(operands) != 2
        or not non_empty(*operands, out)
        or (not is_float32(*operands, out) and not is_quantized(*operands, out))
    ):
        return False
    transposed = [bool(op.args[f"transpose_in{i}"]) for i in (0, 1)]
    a, b = (
        rw.transpose(op, v, _swap_last_dims(len(v.bound))) if t else v
        for v, t in zip(operands, transposed, strict=True)
    )
    if is_float32(out):
        a, b = rw.round_half(op, a), rw.round_half(op, b)
        rw.emit_rounded("core.bmm", op, out, self=a, other=b)
        return True
    zeros = [int(np.asarray(v.q.zero_point)) for v in (a, b) if v.q is not None]
    rw.emit("core.int_matmul", op, out, self=a, other=b, zeros=zeros, scaling=product_scale(a, b, out, None))
    return True


def _swap_last_dims(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


_MAX_DEPTH = 256  # planes of a window, each of which is a copy; more are gathered


@rule("Conv3d")
def _convolution_3d(rw: QnnRewrite, op: Op) -> bool:
    p, groups = conv_operands(rw, op), int(op.args["group"])
    if p is None:
        return False
    if groups > 1 and p.weights.size * groups <= _MAX_DENSE_WEIGHTS:
        p.weights = np.stack([dense_filters(w.transpose(3, 0, 1, 2), groups).transpose(1, 2, 3, 0) for w in p.weights])
        groups = 1
    (stride_z, stride_y, stride_x), pads, dilation = (list(op.args[n]) for n in ("stride", "pad_amount", "dilation"))
    padded = rw.pad(op, p.x, [(0, 0), (pads[0][0], pads[0][1]), *[(0, 0)] * 3])
    planes = _gather_planes(rw, op, padded, p.weights.shape[0], stride_z, dilation[0], p.out.bound[1], groups)
    weights = np.concatenate(list(p.weights), axis=2)  # [high, wide, planes by inputs, outputs]
    flat = rw.temporary(p.out, (p.out.bound[0] * p.out.bound[1], *p.out.bound[2:]))
    window = {
        "stride": [stride_y, stride_x],
        "padding": [n for pair in pads[1:] for n in pair],
        "dilation": dilation[1:],
    }
    emit_conv2d(rw, op, p, planes, weights, flat, groups, window)
    rw.emit_reshape(op, flat, p.out)
    return True


def _gather_planes(rw: QnnRewrite, op: Op, x: Value, window: int, stride: int, dilation: int, results: int,
                   groups: int) -> Value:  # fmt: skip
    """For each plane of the result the planes of its window, concatenated along the channels of each group."""
    images, depth, *size = x.bound
    if window > _MAX_DEPTH or groups > 1:
        places = np.arange(results)[:, None] * stride + np.arange(window) * dilation
        index, (high, wide, channels) = make_constant("places", places.reshape(-1)), size
        shape = (images, places.size, *size)
        taken = rw.emit_temporary("core.index_select", op, x, shape, self=x, dim=1, index=index)
        split = rw.reshape(op, taken, (images * results, window, high, wide, groups, channels // groups))
        return rw.reshape(op, rw.transpose(op, split, [0, 2, 3, 4, 1, 5]), (images * results, high, wide,
                                                                            window * channels))  # fmt: skip
    missing = max((window - 1) * dilation + results * stride - depth, 0)  # so that every plane has a full stride
    x = rw.pad(op, x, [(0, 0), (0, missing), *[(0, 0)] * 3])
    taps = []
    for tap in range(window):
        plane = rw.slice(op, x, [0, tap * dilation, 0, 0, 0], (images, results * stride, *size))
        if stride > 1:
            plane = rw.reshape(op, plane, (images, results, stride, *size))
            plane = rw.slice(op, plane, [0] * 6, (images, results, 1, *size))
        taps.append(rw.reshape(op, plane, (images * results, *size)))
    return rw.concat(op, taps, 3)


@rule("TransposeConv3d")
def _transposed_3d(rw: QnnRewrite, op: Op) -> bool:
    """Upsample the depth with zero planes, then run a transposed 2D convolution over each window of planes."""
    groups = int(op.args["group"])
    p = conv_operands(rw, op, groups)
    if p is None:
        return False
    window, out = p.weights.shape[0], p.out.bound
    filters = [transposed_filters(w, groups) for w in p.weights[::-1]]
    if groups > 1 and p.weights.size * groups <= _MAX_DENSE_WEIGHTS:
        filters, groups = [dense_filters(f, groups) for f in filters], 1
    data = np.concatenate(filters, axis=3)
    planes = _gather_planes(rw, op, _upsample_depth(rw, op, p.x, window), window, 1, 1, out[1], groups)
    flat = rw.temporary(p.out, (out[0] * out[1], *out[2:]))
    emit_conv_transpose2d(rw, op, p, planes, data, flat, groups)
    rw.emit_reshape(op, flat, p.out)
    return True


def _upsample_depth(rw: QnnRewrite, op: Op, x: Value, window: int) -> Value:
    """Insert zero planes between planes, and pad or crop the depth."""
    stride, (before, after), output_padding = (op.args[name][0] for name in ("stride", "pad_amount", "output_padding"))
    images, depth, *size = x.bound
    upsampled = rw.pad(
        op, rw.reshape(op, x, (images, depth, 1, *size)), [(0, 0)] * 2 + [(0, stride - 1)] + [(0, 0)] * 3
    )
    upsampled = rw.reshape(op, upsampled, (images, depth * stride, *size))
    margins = (
        window - 1 - before,
        window - stride - after + output_padding,
    )  # upsampling already added planes after the last one
    first, length = max(-margins[0], 0), depth * stride - max(-margins[0], 0) - max(-margins[1], 0)
    upsampled = rw.slice(op, upsampled, [0, first, 0, 0, 0], (images, length, *size))
    return rw.pad(op, upsampled, [(0, 0), (max(margins[0], 0), max(margins[1], 0)), *[(0, 0)] * 3])


@rule("PoolAvg3d")
def _average(rw: QnnRewrite, op: Op) -> bool:
    """Average over each image, then over planes. Padding is materialized; means that must exclude it are rescaled."""
    (x,), out = io_of(op)
    if not non_empty(x, out) or not (is_float32(x, out) or is_quantized(x, out)):
        return False
    sizes, steps = ([int(n) for n in op.args[name]] for name in ("filter_size", "stride"))
    operand, padding = rw.round_half(op, x) if is_float32(x) else x, _padding(op, x, out, sizes, steps)
    padded = rw.pad(op, operand, [(0, 0), *padding, (0, 0)])
    if is_quantized(x):
        unpadded = {**op.args, "inputs": [padded], "pad_amount": [[0, 0]] * len(sizes), "counts": element_counts(op)}
        rw.emit(op.kind, op, out, **unpadded)
        return True
    images, depth, high, wide, channels = padded.bound
    rows, columns = out.bound[2:4]
    flat = rw.reshape(op, padded, (images * depth, high, wide, channels))
    flat = _emit_avg_pool(rw, op, flat, (images * depth, rows, columns, channels), sizes[1:], steps[1:])
    columns_by_plane = rw.reshape(op, flat, (images, depth, rows * columns, channels))
    columns_by_plane = _emit_avg_pool(
        rw, op, columns_by_plane, (images, out.bound[1], rows * columns, channels), [sizes[0], 1], [steps[0], 1]
    )
    average, counts = rw.reshape(op, columns_by_plane, out.bound), element_counts(op)
    if (counts != math.prod(sizes)).any():
        corrections = make_constant("factors", (math.prod(sizes) / counts).astype(np.float32))
        average = rw.emit_temporary("core.mul", op, average, out.bound, self=average, other=corrections)
    rw.emit_rounded("core.clone", op, out, self=average)
    return True


def _padding(op: Op, x: Value, out: Value, sizes: Sequence[int], steps: Sequence[int]) -> list[tuple[int, int]]:
    """Just enough padding for all windows."""
    pairs = []
    for i, (before, _) in enumerate(op.args["pad_amount"]):
        extent = (out.bound[1 + i] - 1) * steps[i] + sizes[i]
        pairs.append((int(before), max(extent - x.bound[1 + i] - int(before), 0)))
    return pairs


def _emit_avg_pool(rw: QnnRewrite, op: Op, x: Value, shape: Sequence[int], size: list[int], stride: list[int]) -> Value:
    """Average pooling of an image that may have pixels beyond the last window."""
    extent = [(n - 1) * s + k for n, s, k in zip(shape[1:3], stride, size, strict=True)]
    x = rw.slice(op, x, [0] * 4, (x.bound[0], *extent, x.bound[3]))
    return rw.emit_temporary("core.avg_pool2d", op, x, shape, self=x, kernel_size=size, stride=stride, padding=[0] * 4)
