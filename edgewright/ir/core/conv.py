"""Convolutions of channels-last images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgewright.ir.aten.reference.conv import convolution
from edgewright.ir.core.evaluation import DynamicRows, EvaluationContext
from edgewright.ir.core.gemm import (
    DYNAMIC_TYPES,
    FILTER_TYPES,
    SCALING,
    WEIGHT_ONLY_TYPES,
    accumulate,
    check_channels,
)
from edgewright.ir.core.table import LIMITS, Shape, ShapeOf, define, integer, integers, require
from edgewright.ir.dialect import FLAG
from edgewright.ir.graph import Array, Op

_INT16_TYPES = "int16 int_weight# i64#? -> int16"
_CONV = {
    "padding": integers(0, 4),  # top, bottom, left, right
    "stride": integers(1, 2),
    "dilation": integers(1, 2),
    "groups": integer(1),
    "output_padding": integers(0, 2).or_absent(),
    "scaling": SCALING.or_absent(),
    "exact": FLAG.or_absent(False),  # integers in float32: only exact algorithms, so no Winograd
    **LIMITS,
}


def is_pointwise_gemm(op: Op, channels: tuple[int, int], kernel: tuple[int, ...]) -> bool:
    """Whether a convolution is computed as a gemm; dynamically quantized, each pixel is then a row with its own scale.

    ``channels``: of input and output. One of each is a depthwise convolution, with one scale per image.
    """
    ones = (*kernel, *op.args["stride"], op.args["groups"])
    return all(n == 1 for n in ones) and not any(op.args["padding"]) and channels != (1, 1)


def is_core_pointwise_gemm(op: Op) -> bool:
    """The same of a device graph's ``conv2d``, whose weights are [output, height, width, input]."""
    outputs, *kernel, inputs = op.args["weight"].bound
    return is_pointwise_gemm(op, (inputs, outputs), tuple(kernel))


def padded_window(size: int, pads: tuple[int, int], kernel: int, stride: int, dilation: int) -> int:
    """How many windows fit along a dimension."""
    extent = dilation * (kernel - 1) + 1
    require(size + sum(pads) >= extent, "the window must fit in the padded image")
    return (size + sum(pads) - extent) // stride + 1


def image_shape(shape: Sequence[int]) -> Shape:
    require(len(shape) == 4, "needs an image of four dimensions")
    return tuple(shape)


def pad_pairs(op: Op) -> list[tuple[int, int]]:
    top, bottom, left, right = op.args["padding"]
    return [(top, bottom), (left, right)]


def padded_elements(op: Op, shape_of: ShapeOf) -> int:
    """The padded image, with at least as many channels as a convolution has filters."""
    batch, height, width, channels = shape_of(op.args["input"] if "input" in op.args else op.args["self"])
    top, bottom, left, right = op.args["padding"]
    weight = shape_of(op.args["weight"]) if "weight" in op.args else ()
    if op.name == "conv_transpose2d":
        extra = op.args.get("output_padding") or (0, 0)
        height, width = ((n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip((height, width), op.args["stride"],
                         op.args["dilation"], weight[1:3], extra, strict=True))  # fmt: skip
    channels = max(channels, weight[3] if op.name == "depthwise_conv2d" else weight[0] if weight else 0)
    return batch * (height + top + bottom) * (width + left + right) * channels


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


# ------------------------------------------------------------------------------------------------------------- forward


def _conv_shape(op: Op, shape_of: ShapeOf) -> Shape:
    batch, height, width, inputs = image_shape(shape_of(op.args["input"]))
    weight, groups = image_shape(shape_of(op.args["weight"])), int(op.args["groups"])
    if op.name == "depthwise_conv2d":
        axis, channels = 3, weight[3]
        require(weight[0] == 1 and inputs == groups and channels % groups == 0, "needs a filter for each channel")
    else:
        axis, channels = 0, weight[0]
        require(weight[3] * groups == inputs and channels % groups == 0, "filters must fit the channels of each group")
    check_channels(op, shape_of, channels, axis)
    sizes = [padded_window(n, p, k, s, d) for n, p, k, s, d in zip((height, width), pad_pairs(op), weight[1:3],
             op.args["stride"], op.args["dilation"], strict=True)]  # fmt: skip
    return (batch, *sizes, channels)


def _conv2d(ex: EvaluationContext, op: Op) -> Array:
    data = ex.raw(op.args["input"])
    if isinstance(data, DynamicRows) and is_core_pointwise_gemm(op):
        ex.values[op.args["input"]] = DynamicRows(*ex.numerics.quantize_rows(data.real, 1), data.real)
        result = accumulate(ex, op, _convolve(op), 3)
        ex.values[op.args["input"]] = data
        return result
    return accumulate(ex, op, _convolve(op), 3)


def _depthwise(ex: EvaluationContext, op: Op) -> Array:
    return accumulate(ex, op, _convolve(op, depthwise=True), 3)


define(
    "conv2d",
    "convolution; `weight` is [outputs, height, width, inputs per group]",
    "input weight bias?",
    f"{FILTER_TYPES} | {_INT16_TYPES} | {WEIGHT_ONLY_TYPES} | {DYNAMIC_TYPES}",
    _conv_shape,
    _conv2d,
    _CONV,
    size=padded_elements,
)
define(
    "depthwise_conv2d",
    "depthwise convolution; `weight` is [1, height, width, outputs]",
    "input weight bias?",
    f"{FILTER_TYPES} | {_INT16_TYPES} | {DYNAMIC_TYPES}",
    _conv_shape,
    _depthwise,
    _CONV,
    size=padded_elements,
    compiled="f32 f16 bf16 qi8 qu8 i16 qi16 qu16",
)


# ---------------------------------------------------------------------------------------------------------- transposed


def _conv_transpose_shape(op: Op, shape_of: ShapeOf) -> Shape:
    batch, *image, inputs = image_shape(shape_of(op.args["input"]))
    weight, stride = image_shape(shape_of(op.args["weight"])), op.args["stride"]
    groups, extra = op.args["groups"], op.args.get("output_padding") or (0, 0)
    require(weight[3] * groups == inputs and weight[0] % groups == 0, "filters must fit the channels of each group")
    require(all(e < s for e, s in zip(extra, stride, strict=True)), "output_padding must be less than the stride")
    check_channels(op, shape_of, weight[0], 0)
    sizes = [(n - 1) * s + d * (k - 1) + 1 + e - sum(p) for n, s, d, k, e, p in
             zip(image, stride, op.args["dilation"], weight[1:3], extra, pad_pairs(op), strict=True)]  # fmt: skip
    require(min(sizes) > 0, "padding must leave a part of the image")
    return (batch, *sizes, weight[0])


def _conv_transpose2d(ex: EvaluationContext, op: Op) -> Array:
    return accumulate(ex, op, _convolve(op, transposed=True), 3)


define(
    "conv_transpose2d",
    "transposed convolution; `weight` is [outputs, height, width, inputs per group]",
    "input weight bias?",
    f"{FILTER_TYPES} | {DYNAMIC_TYPES}",
    _conv_transpose_shape,
    _conv_transpose2d,
    _CONV,
    size=padded_elements,
    compiled="f32 f16 bf16 qi8 qu8",
)
