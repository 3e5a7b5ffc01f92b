"""Linear layers, convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.ir.aten.reference.conv import convolution
from edgewright.ir.core.dynamic_conv import is_core_pointwise_gemm
from edgewright.ir.core.registry import DynamicRows, EvaluationContext, implements
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import as_float32, broadcast_params


def _accumulate(ex: EvaluationContext, op: Op, product: Callable[[Array, Array], Array], axis: int) -> Array:
    """Linear and convolution on float, quantized or dynamically quantized operands. ``axis``: output channels."""
    x, w, b, out = op.args["input"], op.args["weight"], op.args.get("bias"), op.outputs[0]
    assert out is not None
    data = ex.raw(x)
    bias = None if b is None else np.asarray(ex.raw(b))
    if isinstance(data, DynamicRows):
        return _dynamic(ex, op, data, product, bias)
    scaling = op.args.get("scaling")
    if scaling is None and (x.q is None or out.q is None):
        total = product(ex.real(x), ex.real(w))
        return ex.store(op, total if b is None else total + ex.real(b))
    zero = 0 if x.q is None else x.q.zero_point
    total = np.rint(product((data.astype(np.float64) - zero), np.asarray(ex.raw(w)).astype(np.float64)))
    if bias is not None:
        total = total + bias
    if scaling is not None:
        return np.asarray(scaling.apply(total.astype(np.int64)).astype(out.dtype))
    assert out.q is not None
    factor = as_float32(x.q.scale) * as_float32(w.q.scale) / as_float32(out.q.scale)
    broadcast_factor = broadcast_params(factor, axis if np.ndim(factor) else None, total.ndim)
    return ex.numerics.requantize(total, broadcast_factor, out.q, op.args.get("limits"))


def _dynamic(
    ex: EvaluationContext, op: Op, rows: DynamicRows, product: Callable[[Array, Array], Array], bias: Array | None
) -> Array:
    w: Value = op.args["weight"]
    assert w.q is not None
    centered = rows.raw.astype(np.float64) - rows.zero
    weight = np.asarray(ex.raw(w)).astype(np.float64)
    scales = np.asarray(w.q.scale, np.float32)
    if w.q.block:
        weight = weight * np.repeat(scales.reshape(weight.shape[0], -1), w.q.block, axis=1)
        total = product(centered, weight).astype(np.float32) / rows.scale
    else:
        total = product(centered, weight).astype(np.float32) * (np.float32(1) / rows.scale) * scales
    return ex.store(op, total if bias is None else total + bias.astype(np.float32))


@implements("linear")
def _linear(ex: EvaluationContext, op: Op) -> Array:
    transposed = op.args.get("transposed", False)
    return _accumulate(ex, op, lambda x, w: x @ (w if transposed else w.T), -1)


def _convolve(op: Op, *, transposed: bool = False, depthwise: bool = False) -> Callable[[Array, Array], Array]:
    """Convolution of channels-last images by filters stored output, height, width, input."""
    pads = op.args["padding"]
    stride, dilation = op.args["stride"], op.args["dilation"]
    groups, extra = op.args["groups"], op.args.get("output_padding") or [0, 0]

    def product(x: Array, w: Array) -> Array:
        top, bottom, left, right = pads
        filters = w.transpose(3, 0, 1, 2) if depthwise else w.transpose(0, 3, 1, 2)
        image = x.transpose(0, 3, 1, 2)
        if transposed:
            kernels = _to_aten_layout(filters, groups)
            out = convolution(image, kernels, None, stride, [0, 0], dilation, True, extra, groups)
            return out[..., top : out.shape[2] - bottom, left : out.shape[3] - right].transpose(0, 2, 3, 1)
        if (top, left) != (bottom, right):
            image = np.pad(image, ((0, 0), (0, 0), (top, bottom), (left, right)))
            top = left = 0
        out = convolution(image, filters, None, stride, [top, left], dilation, False, [0, 0], groups)
        return np.asarray(out.transpose(0, 2, 3, 1))

    return product


def _to_aten_layout(filters: Array, groups: int) -> Array:
    """Filters of a transposed convolution as ATen has them: input channels first."""
    out, inputs_per_group, height, width = filters.shape
    parts = filters.reshape(groups, out // groups, inputs_per_group, height, width).transpose(0, 2, 1, 3, 4)
    return parts.reshape(groups * inputs_per_group, out // groups, height, width)


@implements("conv2d")
def _conv2d(ex: EvaluationContext, op: Op) -> Array:
    data = ex.raw(op.args["input"])
    if isinstance(data, DynamicRows) and is_core_pointwise_gemm(op):
        ex.values[op.args["input"]] = DynamicRows(*ex.numerics.quantize_rows(data.real, 1), data.real)
        result = _accumulate(ex, op, _convolve(op), 3)
        ex.values[op.args["input"]] = data
        return result
    return _accumulate(ex, op, _convolve(op), 3)


@implements("depthwise_conv2d")
def _depthwise(ex: EvaluationContext, op: Op) -> Array:
    return _accumulate(ex, op, _convolve(op, depthwise=True), 3)


@implements("conv_transpose2d")
def _conv_transpose2d(ex: EvaluationContext, op: Op) -> Array:
    return _accumulate(ex, op, _convolve(op, transposed=True), 3)


@implements("int_matmul")
def _int_matmul(ex: EvaluationContext, op: Op) -> Array:
    """Integer matrix product without zero points, requantized by ``scaling``."""
    pair = zip((op.args["self"], op.args["other"]), op.args["zeros"], strict=True)
    left, right = (np.asarray(ex.raw(v)).astype(np.float64) - zero for v, zero in pair)
    out = op.outputs[0]
    assert out is not None
    return np.asarray(op.args["scaling"].apply((left @ right).astype(np.int64)).astype(out.dtype))


@implements("bmm")
def _bmm(ex: EvaluationContext, op: Op) -> Array:
    return ex.store(op, ex.real(op.args["self"]) @ ex.real(op.args["other"]))
