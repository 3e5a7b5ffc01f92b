"""The same operators as XNNPACK rounds them, where it differs: once, in single precision, halves to even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import XNNPACK
from edgewright.ir.tflite import conv, elementwise, fixed_point_math
from edgewright.ir.tflite.rounding import centred, scale, scales, stored

_F32 = np.float32
_STEP, _STEEPEST = _F32(1 / 256), _F32(128)  # factors of leaky activations that XNNPACK takes


def _ends(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _single(acc: Array, factor: Array, out: Value) -> Array:
    return stored(np.rint(acc.astype(_F32) * factor).astype(np.int64), out)


def product(accumulate: conv.Reference) -> conv.Reference:
    """An accumulator times a factor: the product of two scales, rounded, over the third."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (x, weight), (_, out) = conv.operands(op), _ends(op)
        return _single(accumulate(op, arrays), scale(x) * scales(weight) / scale(out), out)

    return function


def mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = _ends(op)
    acc = centred(a, arrays[0]) * centred(b, arrays[1])
    return _single(acc, np.asarray(scale(a) * scale(b) / scale(out)), out)


def summed(sign: int) -> conv.Reference:
    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (a, b), out = _ends(op)
        assert a.q is not None and b.q is not None and out.q is not None
        left, right = centred(a, arrays[0]), sign * centred(b, arrays[1])
        return XNNPACK.sum(left, right, (a.q, b.q), out.q, None)

    return function


def leaky_relu(op: Op, arrays: Sequence[Array]) -> Array:
    """Factors in steps of 1/256; halves go up. Smaller factors than a step are left to the reference kernel."""
    (x,), out = _ends(op)
    steep = scale(x) / scale(out)
    pair = (steep, steep * _F32(op.args["alpha"]))
    if not all(_STEP <= abs(f) <= _STEEPEST for f in pair):
        return elementwise.leaky_relu(op, arrays)
    factors = [int(np.rint(_F32(-256) * f)) for f in pair]
    below = -centred(x, arrays[0]) << 7
    product = np.where(below <= 0, below * factors[0], below * factors[1])
    return stored((product + (1 << 14)) >> 15, out)


def resize_bilinear(op: Op, arrays: Sequence[Array]) -> Array:
    """Weights in steps of 1/2048; halves go up."""
    _, out = _ends(op)
    image = arrays[0].astype(np.int64)
    (top, bottom, down), (left, right, along) = (
        between(image.shape[1 + a], out.bound[1 + a], bool(op.args["align_corners"])) for a in (0, 1)
    )
    down, along = down.reshape(1, -1, 1, 1), along.reshape(1, 1, -1, 1)
    upper, lower = image[:, top], image[:, bottom]
    rows = [(r[:, :, left] << 11) + (r[:, :, right] - r[:, :, left]) * along for r in (upper, lower)]
    return np.asarray(((rows[0] << 11) + (rows[1] - rows[0]) * down + (1 << 21)) >> 22, np.int8)


def between(size: int, wanted: int, aligned: bool) -> tuple[Array, Array, Array]:
    """The pixels before and after each result, and how far it is between them."""
    spread = _F32(size - 1) / _F32(max(wanted - 1, 1)) if aligned else _F32(size) / _F32(wanted)
    at = np.arange(wanted, dtype=_F32) * spread
    at = at if aligned else np.clip((np.arange(wanted, dtype=_F32) + _F32(0.5)) * spread - _F32(0.5), 0, size - 1)
    first = np.floor(at).astype(np.int64)
    weight = np.rint((at - first.astype(_F32)) * _F32(2048)).astype(np.int64)
    return first, np.minimum(first + 1, size - 1), weight


OVERRIDES: dict[str, conv.Reference] = {
    "CONV_2D": product(conv.conv_2d),
    "DEPTHWISE_CONV_2D": product(conv.depthwise_conv_2d),
    "TRANSPOSE_CONV": product(conv.transpose_conv),
    "FULLY_CONNECTED": product(conv.fully_connected),
    "BATCH_MATMUL": product(conv.batch_matmul),
    "MUL": mul,
    "ADD": summed(1),
    "SUB": summed(-1),
    "MEAN": fixed_point_math.nearest_sums,
    "SUM": fixed_point_math.nearest_sums,
    "LEAKY_RELU": leaky_relu,
    "RESIZE_BILINEAR": resize_bilinear,
}
