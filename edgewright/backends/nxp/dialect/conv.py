"""References of convolutions and matrix products. Images are NHWC; padding is a separate operator.

Products return accumulators; ``with_double_rounding`` and ``with_single_rounding`` requantize them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgewright.backends.nxp.dialect.numerics import quantize_output, scale, scales, subtract_zero_point
from edgewright.ir.fixed_point import rescale, rescale_once
from edgewright.ir.graph import Array, Op, Value

Reference = Callable[[Op, Sequence[Array]], Array]
_ACC_DTYPE = np.float64  # exact for sums of int8 products, and uses BLAS


def _patches(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int] = (1, 1)) -> Array:
    """im2col as a strided view, ``(n, oh, ow, kh, kw, c)``."""
    n, h, w, c = x.shape
    oh = (h - (kernel[0] - 1) * dilation[0] - 1) // stride[0] + 1
    ow = (w - (kernel[1] - 1) * dilation[1] - 1) // stride[1] + 1
    sn, sh, sw, sc = x.strides
    strides = (sn, sh * stride[0], sw * stride[1], sh * dilation[0], sw * dilation[1], sc)
    return np.lib.stride_tricks.as_strided(x, (n, oh, ow, *kernel, c), strides, writeable=False)


def _height_width(op: Op, name: str) -> list[int]:
    """An argument that is stored as two fields, height and width."""
    fields = {"stride": ("stride_h", "stride_w"), "dilation": ("dilation_h", "dilation_w")}
    return [int(op.args[field]) for field in fields[name]]


def requant_factor(x: Value, weight: Value, out: Value) -> Array:
    """Requantization factors of an accumulator, per channel: in double precision, from float32 scales."""
    return np.float64(scale(x)) * scales(weight).astype(np.float64) / np.float64(scale(out))


def matmul_factor(x: Value, weight: Value, out: Value) -> Array:
    """The same for ``BATCH_MATMUL``, which rounds the product of both input scales to float32."""
    return np.asarray(np.float64(scale(x) * scale(weight)) / np.float64(scale(out)))


def conv_2d(op: Op, arrays: Sequence[Array]) -> Array:
    """The filter is OHWI."""
    x = op.args["inputs"][0]
    image, filters, bias = subtract_zero_point(x, arrays[0]).astype(_ACC_DTYPE), arrays[1].astype(_ACC_DTYPE), arrays[2]
    windows = _patches(image, filters.shape[1:3], _height_width(op, "stride"), _height_width(op, "dilation"))
    rows = windows.reshape(-1, int(np.prod(filters.shape[1:])))
    acc = (rows @ filters.reshape(len(filters), -1).T).astype(np.int64) + bias
    return acc.reshape(*windows.shape[:3], len(filters))


def depthwise_conv_2d(op: Op, arrays: Sequence[Array]) -> Array:
    """The filter is 1HWC."""
    filters = arrays[1][0].astype(_ACC_DTYPE)
    image = subtract_zero_point(op.args["inputs"][0], arrays[0]).astype(_ACC_DTYPE)
    windows = _patches(image, filters.shape[:2], _height_width(op, "stride"), _height_width(op, "dilation"))
    return np.einsum("nhwklc,klc->nhwc", windows, filters).astype(np.int64) + arrays[2]


def transpose_conv(op: Op, arrays: Sequence[Array]) -> Array:
    """Inputs: output shape, OHWI filter, image, bias. Elements outside the output shape are discarded."""
    out = _output(op)
    filters, image = arrays[1].astype(np.int64), subtract_zero_point(op.args["inputs"][2], arrays[2])
    (n, h, w, _), (sy, sx) = image.shape, _height_width(op, "stride")
    count, kh, kw, _ = filters.shape
    acc = np.zeros((n, (h - 1) * sy + kh, (w - 1) * sx + kw, count), np.int64)
    for i in range(kh):
        for j in range(kw):
            part = acc[:, i : i + (h - 1) * sy + 1 : sy, j : j + (w - 1) * sx + 1 : sx]
            part += (image.astype(_ACC_DTYPE) @ filters[:, i, j].T.astype(_ACC_DTYPE)).astype(np.int64)
    return acc[:, : out.bound[1], : out.bound[2]] + arrays[3]


def fully_connected(op: Op, arrays: Sequence[Array]) -> Array:
    """The weight is ``[output, input]``."""
    rows = subtract_zero_point(op.args["inputs"][0], arrays[0]).astype(_ACC_DTYPE)
    return (rows @ arrays[1].astype(_ACC_DTYPE).T).astype(np.int64) + arrays[2]


def batch_matmul(op: Op, arrays: Sequence[Array]) -> Array:
    left, right = (
        subtract_zero_point(v, array).astype(_ACC_DTYPE) for v, array in zip(op.args["inputs"], arrays, strict=True)
    )
    return (left @ right).astype(np.int64)


def product_operands(op: Op) -> tuple[Value, Value]:
    """The two tensors that the accumulator is a sum of products of."""
    inputs = op.args["inputs"]
    return (inputs[2], inputs[1]) if op.kind.endswith("TRANSPOSE_CONV") else (inputs[0], inputs[1])


def with_double_rounding(
    accumulate: Reference, factor: Callable[[Value, Value, Value], Array] = requant_factor
) -> Reference:
    """Requantize an accumulator with double rounding (see ``rounding.py``)."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        out = _output(op)
        return quantize_output(rescale(accumulate(op, arrays), factor(*product_operands(op), out)), out)

    return function


def with_single_rounding(accumulate: Reference) -> Reference:
    """Requantize with a single rounding, as ``FULLY_CONNECTED`` does, unlike convolutions."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        out = _output(op)
        return quantize_output(
            rescale_once(accumulate(op, arrays), float(requant_factor(*product_operands(op), out).reshape(-1)[0])), out
        )

    return function


BATCH_MATMUL = with_double_rounding(batch_matmul, matmul_factor)  # of two computed matrices


def _output(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out
