"""How QNN's quantized operators round where they are core operators.

They round once, half to even, in float32, and add 8-bit tensors in fixed point; conversions are operators of their own.
``dtypes.py`` has the rules of QNN's other operators.
"""

from __future__ import annotations

from edgewright.ir.numerics import (
    Numerics,
    convert_by_float32,
    dequantize_float32,
    limits_float32,
    mean_steps_float32,
    quantize_float32,
    quantize_rows_int8,
    requantize_float32,
    sum_factors_21bit,
)


class QnnNumerics(Numerics):
    """The numerics of QNN graphs."""

    name = "qnn"
    quantize = staticmethod(quantize_float32)
    dequantize = staticmethod(dequantize_float32)
    requantize = staticmethod(requantize_float32)
    convert = staticmethod(convert_by_float32)
    mean_steps = staticmethod(mean_steps_float32)
    sum_factors = staticmethod(sum_factors_21bit)
    limits = staticmethod(limits_float32)
    quantize_rows = staticmethod(quantize_rows_int8)


QNN = QnnNumerics()
