"""Cost of a kernel call, in multiply-accumulates: decides whether compiling a segment is worth its time."""

from __future__ import annotations

import math

from edgewright.ir.graph import Op, Value
from edgewright.runtime.jit.graph_builder import FLOATS, TRANSCENDENTAL_COST

# Elementwise operators that numpy computes as fast as memory delivers them, if all tensors are floats of one type.
_CHEAP = {
    "add", "sub", "mul", "div", "maximum", "minimum", "relu", "hardtanh", "clamp", "sigmoid", "tanh", "exp", "sqrt",
    "abs", "neg", "log", "rsqrt", "floor", "ceil",
}  # fmt: skip
_TRANSCENDENTAL = {
    "atan2", "pow", "expm1", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh", "erf", "reciprocal", "exp", "log", "tanh", "sqrt", "rsqrt", "sigmoid", "round", "sign",
    "trunc",
}  # fmt: skip


def call_cost(op: Op) -> int:
    """The cost of an operator of the ATen dialect."""
    tensors = [v for v in (*op.inputs(), *op.outputs) if v is not None]
    elements = max(math.prod(v.bound) for v in tensors)
    one_float_type = tensors[0].dtype in FLOATS and len({v.dtype for v in tensors}) == 1
    if one_float_type and (op.kind in _CHEAP or _is_square(op)):
        return 0
    floating = any(isinstance(v, Value) and v.dtype in FLOATS for v in op.outputs)
    return elements * (TRANSCENDENTAL_COST + 1 if op.kind in _TRANSCENDENTAL and floating else 1)


def _is_square(op: Op) -> bool:
    return op.kind == "pow" and op.args["exponent"] == 2
