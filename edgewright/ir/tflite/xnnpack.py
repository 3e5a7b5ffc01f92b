"""The same operators as XNNPACK rounds them, where it differs: once, in single precision, halves to even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import XNNPACK
from edgewright.ir.tflite import products
from edgewright.ir.tflite.fixed import centred, scale, scales, stored

_F32 = np.float32


def _ends(op: Op) -> tuple[list[Value], Value]:
    out = op.outputs[0]
    assert out is not None
    return op.args["inputs"], out


def _single(acc: Array, factor: Array, out: Value) -> Array:
    return stored(np.rint(acc.astype(_F32) * factor).astype(np.int64), out)


def product(accumulate: products.Reference) -> products.Reference:
    """An accumulator times a factor: the product of two scales, rounded, over the third."""

    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (x, weight), (_, out) = products.operands(op), _ends(op)
        return _single(accumulate(op, arrays), scale(x) * scales(weight) / scale(out), out)

    return function


def mul(op: Op, arrays: Sequence[Array]) -> Array:
    (a, b), out = _ends(op)
    acc = centred(a, arrays[0]) * centred(b, arrays[1])
    return _single(acc, np.asarray(scale(a) * scale(b) / scale(out)), out)


def summed(sign: int) -> products.Reference:
    def function(op: Op, arrays: Sequence[Array]) -> Array:
        (a, b), out = _ends(op)
        assert a.q is not None and b.q is not None and out.q is not None
        left, right = centred(a, arrays[0]), sign * centred(b, arrays[1])
        return XNNPACK.sum(left, right, (a.q, b.q), out.q, None)

    return function


OVERRIDES: dict[str, products.Reference] = {
    "CONV_2D": product(products.conv_2d),
    "DEPTHWISE_CONV_2D": product(products.depthwise_conv_2d),
    "TRANSPOSE_CONV": product(products.transpose_conv),
    "FULLY_CONNECTED": product(products.fully_connected),
    "MUL": mul,
    "ADD": summed(1),
    "SUB": summed(-1),
}
