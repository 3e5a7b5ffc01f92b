"""Lowering of elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import QnnLowering, order_of, real_numbers, result, stored
from edgewright.backends.qualcomm.norms import scaling
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity
from edgewright.lowering.passes.value_storage import activation_limits

Lower = Callable[[QnnLowering, Op], None]
_LARGEST = float(np.finfo(np.float32).max)

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


def power(low: QnnLowering, op: Op) -> None:
    """Squares are products, and roots are roots, which are more exact."""
    order, exponent = order_of(low, op), op.args["exponent"]
    if exponent == 2:
        square(low, op)
    elif exponent == 0.5:
        of(UNARY["sqrt"])(low, op)
    else:
        low.finish(op, order, "ElementWisePower", [low.operand(op, name, order) for name in ("self", "exponent")])


def floor_divide(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    inputs = [low.operand(op, name, order) for name in ("self", "other")]
    low.finish(op, order, "ElementWiseBinary", inputs, operation=4)


def prelu(low: QnnLowering, op: Op) -> None:
    """A slope for each channel: they are those of the last dimension."""
    x = op.args["self"]
    rank = len(x.shape)
    order = (0, *range(2, rank), 1) if rank > 1 else identity(rank)
    slope = real_numbers(op.args["weight"]).reshape(-1)
    held = low.constant(slope.astype(np.float32)) if x.q is None else scaling(low, slope, x, signed=False)
    low.finish(op, order, "Prelu", [low.get(x, order), held])


def is_wild(kind: str, **params: bool) -> Lower:
    """Told of 16 bits, as which real numbers are computed."""

    def lower(low: QnnLowering, op: Op) -> None:
        order = order_of(low, op)
        held = low.operand(op, "self", order)
        half = low.whole(held.bound, np.float16)
        low.node("Cast", [held], half)
        low.finish(op, order, kind, [half], **params)

    return lower


def masked_fill(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    low.finish(op, order, "ElementWiseSelect", [low.operand(op, name, order) for name in ("mask", "value", "self")])


def cast(low: QnnLowering, op: Op) -> None:
    """To another type; 64-bit integers have 32 bits already. Fractions go towards zero, and every number but zero is
    true: QNN says neither of its own casts."""
    x, out = op.args["self"], result(op)
    order = order_of(low, op)
    held = low.get(x, order)
    made = low.make(out, order)
    assert held.dtype is not None and made.dtype is not None
    if held.dtype == made.dtype:
        low.alias(out, order, held)
    elif made.dtype == np.bool_:
        zero = low.constant(np.zeros([1] * max(len(held.bound), 1), held.dtype))
        low.node("ElementWiseNotEqual", [held, zero], made)
    else:
        low.node("Cast", [_truncated(low, held) if held.dtype.kind == "f" and made.dtype.kind in "iu" else held], made)


def _truncated(low: QnnLowering, held: Value) -> Value:
    """Real numbers without their fractions."""
    size, whole, sign, made = (low.temporary(held.bound, held) for _ in range(4))
    low.node("ElementWiseAbs", [held], size)
    low.node("ElementWiseFloor", [size], whole)
    low.node("ElementWiseSign", [held], sign)
    low.node("ElementWiseMultiply", [whole, sign], made)
    return made


def square(low: QnnLowering, op: Op) -> None:
    order = order_of(low, op)
    x = low.operand(op, "self", order)
    low.finish(op, order, "ElementWiseMultiply", [x, x])


def convert(low: QnnLowering, op: Op) -> None:
    """Between real numbers and integers, or integers of two scales."""
    order, out = order_of(low, op), result(op)
    held = low.operand(op, "self", order)
    if op.kind == "quantize" and held.data is not None:
        low.alias(out, order, low.constant(stored(held.data, out.q), out.q))
        return
    kind = {"quantize": "Quantize", "dequantize": "Dequantize", "requantize": "Convert"}[op.kind]
    low.finish(op, order, kind, [held])


def made_now(low: QnnLowering, op: Op) -> None:
    """Numbers that do not depend on any other: a constant. Infinite ones become the largest there are."""
    out = result(op)
    data = np.asarray(OPS[op.kind].call(op.args)[0])
    if data.dtype.kind == "f":
        data = np.nan_to_num(data, nan=np.nan, posinf=_LARGEST, neginf=-_LARGEST)
    assert out.dtype is not None
    held = np.broadcast_to(data, out.bound).astype(np.int32 if out.dtype == np.int64 else out.dtype)
    low.alias(out, identity(len(out.shape)), low.constant(np.ascontiguousarray(held)))
