"""Lowering of operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgewright.backends.qualcomm.lower import QnnLowering, order_of, result
from edgewright.ir.graph import Op
from edgewright.passes.quantization import activation_limits

Lower = Callable[[QnnLowering, Op], None]

# Functions of one tensor, by QNN's name for them.
UNARY = {
    "abs": "ElementWiseAbs", "asin": "ElementWiseAsin", "atan": "ElementWiseAtan", "ceil": "ElementWiseCeil",
    "cos": "ElementWiseCos", "exp": "ElementWiseExp", "floor": "ElementWiseFloor", "log": "ElementWiseLog",
    "neg": "ElementWiseNeg", "round": "ElementWiseRound", "rsqrt": "ElementWiseRsqrt", "sign": "ElementWiseSign",
    "sin": "ElementWiseSin", "sqrt": "ElementWiseSquareRoot", "gelu": "Gelu", "hardswish": "HardSwish",
    "sigmoid": "Sigmoid", "tanh": "Tanh",
}  # fmt: skip
BINARY = {
    "add": "ElementWiseAdd", "sub": "ElementWiseSubtract", "mul": "ElementWiseMultiply", "div": "ElementWiseDivide",
    "maximum": "ElementWiseMaximum", "minimum": "ElementWiseMinimum",
}  # fmt: skip
COMPARE = {
    "eq": "ElementWiseEqual", "ne": "ElementWiseNotEqual", "gt": "ElementWiseGreater", "ge": "ElementWiseGreaterEqual",
    "lt": "ElementWiseLess", "le": "ElementWiseLessEqual", "logical_and": "ElementWiseAnd",
    "logical_or": "ElementWiseOr", "logical_xor": "ElementWiseXor", "bitwise_and": "ElementWiseAnd",
    "bitwise_or": "ElementWiseOr", "bitwise_xor": "ElementWiseXor",
}  # fmt: skip


def of(kind: str, *names: str, **params: Any) -> Lower:
    """One node whose inputs are these arguments."""

    def lower(low: QnnLowering, op: Op) -> None:
        order = order_of(low, op)
        low.finish(op, order, kind, [low.operand(op, name, order) for name in names or ("self",)], **params)

    return lower


def limits(low: QnnLowering, op: Op) -> None:
    """Activations that only keep values in limits."""
    order, out = order_of(low, op), result(op)
    ends = activation_limits(op.kind, op)
    assert ends is not None
    low.limited(low.operand(op, "self", order), low.make(out, order), *ends)


def elu(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    low.finish(op, order, "Elu", [low.operand(op, "self", order)], alpha=float(op.args.get("alpha", 1.0)))


def hardsigmoid(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    params = {"operation": 2, "alpha": 1 / 6, "beta": 0.5}
    low.finish(op, order, "ElementWiseNeuron", [low.operand(op, "self", order)], **params)


def leaky_relu(low: QnnLowering, op: Op) -> None:
    """A slope for all channels alike."""
    order = order_of(low, op)
    slope = low.number(float(op.args.get("negative_slope", 0.01)), op)
    low.finish(op, order, "Prelu", [low.operand(op, "self", order), slope])


def reciprocal(low: QnnLowering, op: Op) -> None:
    """The HTP has none, but divides."""
    order = order_of(low, op)
    low.finish(op, order, "ElementWiseDivide", [low.number(1.0, op), low.operand(op, "self", order)])


def square(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    x = low.operand(op, "self", order)
    low.finish(op, order, "ElementWiseMultiply", [x, x])


def convert(low: QnnLowering, op: Op) -> None:
    """Between real numbers and integers, or integers of two scales."""
    order = order_of(low, op)
    kind = {"quantize": "Quantize", "dequantize": "Dequantize", "requantize": "Convert"}[op.kind]
    low.finish(op, order, kind, [low.operand(op, "self", order)])
