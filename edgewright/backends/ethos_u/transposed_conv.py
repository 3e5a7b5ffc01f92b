"""Lowering of transposed convolutions as one regular convolution per row phase.

Vela estimates 0.26 to 0.8 of the cycles of TOSA's TRANSPOSE_CONV2D, which multiplies inserted zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.accumulate import accumulator_scales, accumulator_type, quantized_bias
from edgewright.backends.ethos_u.lower import TosaLowering, result, zero_of
from edgewright.backends.table import conv_argument
from edgewright.ir.graph import Array, Op, Value


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
