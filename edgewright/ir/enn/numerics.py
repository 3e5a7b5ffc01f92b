"""Numerics ``enn``: how this machine computes what an Exynos NPU will.

Samsung says no more than that real numbers are computed in 16 bits, so this is a model of the NPU and not its rounding:

* Real numbers are held in half precision and computed in single: every operand and every result is rounded to half.
* Integers and real numbers become each other as XNNPACK has it (``ir/numerics.py``): in single precision, by one over
  the scale, halves to even. QUANTIZE and DEQUANTIZE read and give single precision.
* Sums of products of integers are exact, with a bias rounded to whole units of them. Bytes come to the result's scale
  in single precision, as XNNPACK's do, and so do their sums and products one by one; 16 bits do in double precision.
* Means, and what softmax and norms divide by, are exact sums of integers too (``ir/int_rows.py``).
* All other operators compute real numbers in single precision. What only moves elements rounds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.ir.graph import Array, Graph, Op, QParams, Value
from edgewright.ir.numerics import XNNPACK, broadcast_params

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_EXACT = 1 << 24  # whole numbers up to here are exact in single precision


def half(x: Array) -> Array:
    """Rounded to half precision, in single."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(_F32)


def centred(value: Value, stored: Array) -> Array:
    """Stored integers without their zero point, in double precision."""
    assert value.q is not None
    return np.asarray(stored.astype(_F64) - broadcast_params(np.asarray(value.q.zero_point), value.q.axis, stored.ndim))


def dequantized(value: Value, stored: Array) -> Array:
    assert value.q is not None
    return XNNPACK.dequantize(stored, value.q)


def quantized(x: Array, q: QParams) -> Array:
    """Real numbers as integers; what is no number is stored as 0."""
    with np.errstate(all="ignore"):
        return XNNPACK.quantize(x, q)


def constant(value: Value) -> Array:
    """A constant as an operator on real numbers reads it."""
    assert value.data is not None
    return dequantized(value, value.data) if value.q is not None else half(value.data)


def byte(value: Value) -> bool:
    """Bytes with one scale."""
    q = value.q
    return q is not None and q.axis is None and q.dtype.itemsize == 1 and value.dtype == q.dtype


def exact(*arrays: Array, terms: int) -> list[Array]:
    """Whole numbers in the narrowest type in which a sum of so many products of them is exact."""
    reach = terms
    for array in arrays:
        reach *= max(1, int(np.abs(array).max(initial=0)))
    return [a.astype(_F32 if reach < _EXACT else _F64) for a in arrays]


class Values:
    """What a graph's values hold while it runs."""

    def __init__(self, graph: Graph, inputs: list[Array]) -> None:
        self.held: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        self._half: set[Value] = set()  # values that are rounded to half precision already

    def stored(self, value: Value) -> Array:
        return value.data if value.data is not None else self.held[value]

    def real(self, value: Value) -> Array:
        """A value as an operator on real numbers reads it."""
        array = self.stored(value)
        if value.q is not None:
            return dequantized(value, array)
        if array.dtype.kind != "f" or value in self._half:
            return array
        return half(array)

    def give(self, value: Value, made: Array) -> None:
        """Keep a real result as its value stores it."""
        if value.q is not None:
            self.held[value] = quantized(made, value.q)
        elif value.dtype == _F32:
            self.held[value] = half(made)
            self._half.add(value)
        else:
            self.held[value] = made.astype(value.dtype)

    def keep(self, value: Value, made: Array, like: Value | None = None) -> None:
        """Keep a result whose elements are as they are stored already; ``like``: where they came from."""
        self.held[value] = made
        if like is not None and like in self._half:
            self._half.add(value)


def inputs_of(op: Op) -> list[Value]:
    given: list[Value] = op.args["inputs"]
    return given


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def integers(op: Op, *operands: Value) -> bool:
    """True if an operator computes whole numbers: operands and result are all quantized."""
    return all(v.q is not None for v in (*operands, result_of(op)))


def number(op: Op, name: str, default: Any = 0) -> Any:
    return op.args.get(name, default)
