"""References of TFLite operators as LiteRT's XNNPACK delegate computes them, where it differs from the reference
kernels: requantization in float32 with a single rounding, half to even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.backends.nxp.dialect import conv, elementwise
from edgewright.backends.nxp.dialect.numerics import LITERT_XNNPACK, quantize_output, scale, scales, subtract_zero_point
from edgewright.ir.graph import Array, Op, Value

_F32 = np.float32
_MIN_FACTOR, _MAX_FACTOR = _F32(1 / 256), _F32(128)  # factors of leaky ReLU that XNNPACK supports


def _operands(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _requantize(acc: Array, factor: Array, out: Value) -> Array:
    return quantize_output(np.rint(acc.astype(_F32) * factor).astype(np.int64), out)


def requantize_product(accumulate: conv.Reference) -> conv.Reference:
    """Requantize an accumulator; the product of the input scales is rounded to float32 before the division."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (x, weight), (_, out) = conv.product_operands(op), _operands(op)
        return _requantize(accumulate(op, arrays), scale(x) * scales(weight) / scale(out), out)

    return function


def mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = _operands(op)
    acc = subtract_zero_point(a, arrays[0]) * subtract_zero_point(b, arrays[1])
    return _requantize(acc, np.asarray(scale(a) * scale(b) / scale(out)), out)


def add_sub(sign: int) -> conv.Reference:
    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (a, b), out = _operands(op)
        assert a.q is not None and b.q is not None and out.q is not None
        left, right = subtract_zero_point(a, arrays[0]), sign * subtract_zero_point(b, arrays[1])
        return LITERT_XNNPACK.sum(left, right, (a.q, b.q), out.q, None)

    return function


def leaky_relu(op: Op, arrays: Sequence[Array]) -> Array:
    """Factors in units of 1/256, rounds half up. XNNPACK rejects smaller factors, so the reference kernel runs."""
    (x,), out = _operands(op)
    positive = scale(x) / scale(out)
    real_factors = (positive, positive * _F32(op.args["alpha"]))
    if not all(_MIN_FACTOR <= abs(f) <= _MAX_FACTOR for f in real_factors):
        return elementwise.leaky_relu(op, arrays)
    factors = [int(np.rint(_F32(-256) * f)) for f in real_factors]
    negated = -subtract_zero_point(x, arrays[0]) << 7
    product = np.where(negated <= 0, negated * factors[0], negated * factors[1])
    return quantize_output((product + (1 << 14)) >> 15, out)


OVERRIDES: dict[str, conv.Reference] = {
    "CONV_2D": requantize_product(conv.conv_2d),
    "DEPTHWISE_CONV_2D": requantize_product(conv.depthwise_conv_2d),
    "TRANSPOSE_CONV": requantize_product(conv.transpose_conv),
    "FULLY_CONNECTED": requantize_product(conv.fully_connected),
    "BATCH_MATMUL": requantize_product(conv.batch_matmul),
    "MUL": mul,
    "ADD": add_sub(1),
    "SUB": add_sub(-1),
    "LEAKY_RELU": leaky_relu,
}
