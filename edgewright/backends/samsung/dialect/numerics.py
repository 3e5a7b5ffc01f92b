"""Numerics ``enn``: how the host computes what an Exynos NPU will.

Samsung documents only that floating point is computed in fp16, and no software here can judge results, so this is a
model of the NPU and not its exact rounding:

* Floating point is stored in fp16 and computed in float32: every operand and every output is rounded to fp16.
* Quantization and dequantization are in float32, multiplying by the reciprocal of the scale, rounding half to even.
  QUANTIZE reads float32 and DEQUANTIZE returns float32.
* Integer accumulators are exact, with the bias rounded to their scale. 8-bit accumulators and products are requantized
  in float32, 16-bit ones in double precision; 8-bit sums are in 21-bit fixed point.
* Means and the denominators of softmax and normalization are exact integer sums (``ir/int_rows.py``).
* All other operators compute in float32. Data movement does not round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.numerics import Float32Numerics, broadcast_params, dequantize_float32, quantize_float32

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_EXACT = 1 << 24  # integers up to this are exact in float32


class EnnNumerics(Float32Numerics):
    """8-bit products, means and conversions in float32; 8-bit sums in 21-bit fixed point."""

    name = "enn"


ENN_NUMERICS = EnnNumerics()


def round_to_fp16(x: Array) -> Array:
    """Round to fp16, stored as float32."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(_F32)


def subtract_zero_point(value: Value, raw: Array) -> Array:
    """Stored integers minus the zero point, in double precision."""
    assert value.q is not None
    return np.asarray(raw.astype(_F64) - broadcast_params(np.asarray(value.q.zero_point), value.q.axis, raw.ndim))


def dequantize_array(value: Value, raw: Array) -> Array:
    assert value.q is not None
    return dequantize_float32(raw, value.q)


def quantize_array(x: Array, q: QParams) -> Array:
    """Quantize; NaN becomes 0."""
    with np.errstate(all="ignore"):
        return quantize_float32(x, q)


def constant_float(value: Value) -> Array:
    """The floating-point value of a constant."""
    assert value.data is not None
    return dequantize_array(value, value.data) if value.q is not None else round_to_fp16(value.data)


def is_qint8(value: Value) -> bool:
    """True for 8-bit values quantized per tensor."""
    q = value.q
    return q is not None and q.axis is None and q.dtype.itemsize == 1 and value.dtype == q.dtype


def in_exact_float(*arrays: Array, terms: int) -> list[Array]:
    """Integers in the narrowest float type in which a sum of ``terms`` products is exact."""
    max_sum = terms
    for array in arrays:
        max_sum *= max(1, int(np.abs(array).max(initial=0)))
    return [a.astype(_F32 if max_sum < _EXACT else _F64) for a in arrays]


class Values:
    """The value table of a running operator."""

    def __init__(self, arrays: Mapping[Value, Array]) -> None:
        self.arrays = dict(arrays)

    def raw(self, value: Value) -> Array:
        return value.data if value.data is not None else self.arrays[value]

    def dequantized(self, value: Value) -> Array:
        """The floating-point value of a tensor."""
        array = self.raw(value)
        if value.q is not None:
            return dequantize_array(value, array)
        return round_to_fp16(array) if array.dtype.kind == "f" else array

    def set_float(self, value: Value, result: Array) -> None:
        """Store a floating-point result in the type of its value."""
        if value.q is not None:
            self.arrays[value] = quantize_array(result, value.q)
        elif value.dtype == _F32:
            self.arrays[value] = round_to_fp16(result)
        else:
            self.arrays[value] = result.astype(value.dtype)

    def set_raw(self, value: Value, result: Array) -> None:
        """Store a result that is in its final type already."""
        self.arrays[value] = result


def inputs_of(op: Op) -> list[Value]:
    inputs: list[Value] = op.args["inputs"]
    return inputs


def result_of(op: Op) -> Value:
    out = op.outputs[0]
    assert out is not None
    return out


def all_quantized(op: Op, *operands: Value) -> bool:
    """True if operands and output are all quantized."""
    return all(v.q is not None for v in (*operands, result_of(op)))
