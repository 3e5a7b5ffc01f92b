"""How QNN's quantized operators round where they are core operators.

They round once, half to even, in float32, and add 8-bit tensors in fixed point; conversions are operators of their own.
``dtypes.py`` has the rules of QNN's other operators.
"""

from __future__ import annotations

from edgewright.ir.numerics import Float32Numerics


class QnnNumerics(Float32Numerics):
    """Products, means and conversions in float32; 8-bit sums in 21-bit fixed point."""

    name = "qnn"


QNN = QnnNumerics()
