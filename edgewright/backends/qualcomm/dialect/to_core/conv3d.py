"""Translation of QNN's 3D convolutions and average pooling to 2D: the planes of a window become image channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.qualcomm.dialect.reduce import element_counts
from edgewright.backends.qualcomm.dialect.to_core.conv import (
    conv_operands,
    dense_filters,
    emit_conv2d,
    emit_conv_transpose2d,
    is_affordable,
    transposed_filters,
)
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    QnnRewrite,
    io_of,
    is_float32,
    make_constant,
    non_empty,
    rule,
)
from edgewright.ir.graph import Op, Value

_MAX_DEPTH = 256  # planes of a window, each of which is a copy


def _is_supported(op: Op) -> bool:
    return is_affordable(op) and op.args["inputs"][1].bound[0] <= _MAX_DEPTH


@rule("Conv3d")
def _convolution(rw: QnnRewrite, op: Op) -> bool:
    p, groups = conv_operands(rw, op) if _is_supported(op) else None, int(op.args["group"])
    if p is None:
        return False
    if groups > 1:
        p.weights = np.stack([dense_filters(w.transpose(3, 0, 1, 2), groups).transpose(1, 2, 3, 0) for w in p.weights])
    (stride_z, stride_y, stride_x), pads, dilation = (list(op.args[n]) for n in ("stride", "pad_amount", "dilation"))
    padded = rw.pad(op, p.x, [(0, 0), (pads[0][0], pads[0][1]), *[(0, 0)] * 3])
    planes = _gather_planes(rw, op, padded, p.weights.shape[0], stride_z, dilation[0], p.out.bound[1])
    weights = np.concatenate(list(p.weights), axis=2)  # [high, wide, planes by inputs, outputs]
    flat = rw.temporary(p.out, (p.out.bound[0] * p.out.bound[1], *p.out.bound[2:]))
    window = {
        "stride": [stride_y, stride_x],
        "padding": [n for pair in pads[1:] for n in pair],
        "dilation": dilation[1:],
    }
    emit_conv2d(rw, op, p, planes, weights, flat, 1, window)
    rw.emit_reshape(op, flat, p.out)
    return True


def _gather_planes(rw: QnnRewrite, op: Op, x: Value, window: int, stride: int, dilation: int, results: int) -> Value:
    """For each plane of the result the planes of its window, concatenated along channels."""
    images, depth, *size = x.bound
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
def _transposed(rw: QnnRewrite, op: Op) -> bool:
    """Upsample the depth with zero planes, then run a transposed 2D convolution over each window of planes."""
    groups = int(op.args["group"])
    p = conv_operands(rw, op, groups) if _is_supported(op) else None
    if p is None:
        return False
    window, out = p.weights.shape[0], p.out.bound
    filters = [transposed_filters(w, groups) for w in p.weights[::-1]]
    data = np.concatenate([dense_filters(f, groups) if groups > 1 else f for f in filters], axis=3)
    planes = _gather_planes(rw, op, _upsample_depth(rw, op, p.x, window), window, 1, 1, out[1])
    flat = rw.temporary(p.out, (out[0] * out[1], *out[2:]))
    emit_conv_transpose2d(rw, op, p, planes, data, flat, 1)
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
    if not is_float32(x, out) or not non_empty(x, out):
        return False
    sizes, steps = ([int(n) for n in op.args[name]] for name in ("filter_size", "stride"))
    padded = rw.pad(op, rw.round_half(op, x), [(0, 0), *_padding(op, x, out, sizes, steps), (0, 0)])
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
