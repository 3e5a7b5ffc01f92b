"""Lowering of transposed convolutions: one plain convolution for each phase of the rows.

By Vela's estimate that takes 0.26 to 0.8 of the cycles of TOSA's own operator, which multiplies inserted zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.accumulate import accumulator, bias_of, units_of
from edgewright.backends.ethos_u.lower import TosaLowering, result, zero_of
from edgewright.backends.table import spread
from edgewright.ir.graph import Array, Op, Value


def transposed(low: TosaLowering, op: Op, image: Value, data: Array) -> Value:
    """The result, with channels last. Filters come as input, output, height, width."""
    stride = spread(op, "stride", 1)
    data = dilated(data, spread(op, "dilation", 1))
    bias = bias_of(low, op, units_of(op), data.shape[1])
    before = spread(op, "padding", 0)
    size = [1, *result(op).bound[-1:]] if len(op.args["weight"].shape) == 3 else list(result(op).bound[-2:])
    return _by_phases(low, op, image, data, bias, stride, before, size)


def dilated(data: Array, dilation: Sequence[int]) -> Array:
    """Filters with zeros between their taps."""
    if list(dilation) == [1, 1]:
        return data
    kernel = [(k - 1) * d + 1 for k, d in zip(data.shape[2:], dilation, strict=True)]
    made = np.zeros((*data.shape[:2], *kernel), data.dtype)
    made[:, :, :: dilation[0], :: dilation[1]] = data
    return made


def _by_phases(
    low: TosaLowering, op: Op, image: Value, data: Array, bias: Value, stride: list[int], before: list[int],
    size: list[int],
) -> Value:  # fmt: skip
    """Every ``stride``-th result in each direction is a plain convolution with every ``stride``-th tap.

    The phases of a row are channels of one convolution, so that a reshape puts them side by side; those of a column
    are put behind each other in a row, so that another reshape makes them rows.
    """
    n, (sy, sx), out = image.bound[0], stride, data.shape[1]
    short = [max(0, before[a] + size[a] - (image.bound[1 + a] - 1) * stride[a]) for a in (0, 1)]
    taps = [-(-max(data.shape[2 + a], short[a]) // stride[a]) for a in (0, 1)]
    full = np.zeros((*data.shape[:2], taps[0] * sy, taps[1] * sx), data.dtype)
    full[:, :, : data.shape[2], : data.shape[3]] = data
    high, wide = image.bound[1] + taps[0] - 1, image.bound[2] + taps[1] - 1
    pads = [taps[0] - 1, taps[0] - 1, taps[1] - 1, taps[1] - 1]
    units = np.tile(units_of(op), sx) if units_of(op).size > 1 else units_of(op)
    every = low.tensor(np.tile(np.asarray(bias.data), sx))
    rows = []
    for y in range(sy):
        phases = [full[:, :, y::sy, x::sx][:, :, ::-1, ::-1].transpose(1, 2, 3, 0) for x in range(sx)]
        args: dict[str, Any] = {"input_zp": zero_of(op.args["input"]), "weight_zp": 0, "stride": [1, 1]}
        acc = low.node("conv2d", [n, high, wide, sx * out], accumulator(op.args["input"]), input=image, bias=every,
                        weight=low.tensor(np.concatenate(phases)), pad=pads, dilation=[1, 1], **args)  # fmt: skip
        made = low.narrow(acc, result(op), units, op.args.get("limits"))
        rows.append(low.reshaped(made, [n, high, wide * sx, out]))
    joined = rows[0]
    if sy > 1:
        joined = low.node("concat", [n, high, sy * wide * sx, out], joined.dtype, inputs=rows, axis=2)
    whole = low.reshaped(joined, [n, high * sy, wide * sx, out])
    return low.sliced(whole, [0, *before, 0], [n, *size, out])
