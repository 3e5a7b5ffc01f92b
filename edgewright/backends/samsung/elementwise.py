"""Lowering of arithmetic, activations and functions of one element, and of conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgewright.backends.samsung.lower import FLOAT32, EnnLowering, real_numbers, result
from edgewright.ir.enn.dtypes import ELEMENT_NAMES
from edgewright.ir.graph import Op
from edgewright.lowering.passes.value_storage import activation_limits

Lower = Callable[[EnnLowering, Op], None]
# Functions of one element, and whether ENN is told that their result is quantized.
UNARY = {
    "relu": ("RELU", True), "hardswish": ("HARDSWISH", True), "hardsigmoid": ("HardSigmoid", True),
    "gelu": ("GELU", True), "sigmoid": ("SIGMOID", False), "tanh": ("TANH", False), "log": ("LOG", False),
    "sqrt": ("SQRT", False), "rsqrt": ("RSQRT", False), "sin": ("Sin", False), "cos": ("Cos", False),
}  # fmt: skip
BINARY = {
    "add": ("ELTSUM", True), "sub": ("SUB", True), "mul": ("ELTMUL", True), "div": ("ELTDIV", True),
    "maximum": ("MAXIMUM", False), "minimum": ("MIN", False),
}  # fmt: skip


def of(kind: str, told: bool, *names: str) -> Lower:
    """A node on these operands, in order."""
    return lambda low, op: low.finish(op, kind, [low.operand(op, n) for n in names or ("self",)], told=told)


def power(low: EnnLowering, op: Op) -> None:
    low.finish(op, "POW", [low.operand(op, "self"), low.operand(op, "exponent")], told=False)


def limits(low: EnnLowering, op: Op) -> None:
    """Activations that keep values within limits, other than ReLU."""
    found = activation_limits(op.kind, op)
    assert found is not None
    low.limited(low.get(op.args["self"]), low.make(result(op)), *found)


def leaky_relu(low: EnnLowering, op: Op) -> None:
    slope = low.constant(np.full((1,), op.args.get("negative_slope", 0.01), FLOAT32))
    low.finish(op, "PRELU", [low.get(op.args["self"]), slope], told=False)


def prelu(low: EnnLowering, op: Op) -> None:
    """Slopes are real numbers, as those of leaky ones are."""
    slope = low.constant(np.asarray(real_numbers(op.args["weight"]), FLOAT32))
    low.finish(op, "PRELU", [low.get(op.args["self"]), slope], told=False)


def convert(low: EnnLowering, op: Op) -> None:
    """Between real numbers and integers, or integers of another scale."""
    low.converted(low.get(op.args["self"]), low.make(result(op)))


def cast(low: EnnLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    if x.dtype == out.dtype:
        low.alias(out, tuple(range(len(out.shape))), low.get(x))
    else:
        low.finish(op, "CAST", [low.get(x)], told=False, out_dtype=ELEMENT_NAMES[str(out.dtype)])
