"""Lowering of comparison, logic, bitwise operators and select on integers and bools: on U85, and shifts on all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.elementwise import operand
from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import copy, quantize_scalar, requantize_to
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order

Lower = Callable[[TosaLowering, Op], None]
BEYOND_RANGE = 1 << 30  # above any stored integer


def _shape(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def _order(low: TosaLowering, op: Op) -> Order:
    return common_order(low, op, len(result(op).shape))


def _cast(low: TosaLowering, x: Value, dtype: Any) -> Value:
    if x.dtype == np.dtype(dtype):
        return x
    if x.constant and x.data is not None:
        return low.const(x.data.astype(dtype))
    return low.node("cast", x.bound, dtype, input=x, dtype=str(np.dtype(dtype)))


# ------------------------------------------------------------------------------------------------------ comparison


def threshold(kind: str, number: float) -> int:
    """The integer to compare with instead of the real ``number``."""
    if kind in ("eq", "ne"):
        nearest = round(number) if math.isfinite(number) else BEYOND_RANGE
        return int(nearest) if math.isclose(nearest, number, rel_tol=1e-6, abs_tol=1e-6) else BEYOND_RANGE
    if not math.isfinite(number):
        return BEYOND_RANGE if number > 0 else -BEYOND_RANGE
    nearest = round(number)
    exact = math.isclose(nearest, number, rel_tol=1e-6, abs_tol=1e-6)
    bound = nearest if exact else math.floor(number) if kind in ("gt", "le") else math.ceil(number)
    return max(min(int(bound), BEYOND_RANGE), -BEYOND_RANGE)


def compare(low: TosaLowering, op: Op) -> None:
    """Compare integers of one scale. TOSA has EQUAL, GREATER and GREATER_EQUAL; the others swap or negate."""
    x, other, out, kind = op.args["self"], op.args["other"], result(op), op.kind
    order = _order(low, op)
    a, b = _comparison_operands(low, op, x, other, order)
    if kind in ("lt", "le"):
        a, b = b, a
    name = {"eq": "equal", "ne": "equal", "gt": "greater", "lt": "greater"}.get(kind, "greater_equal")
    if a.dtype == BOOL:  # TOSA does not compare bools
        a, b = (_cast(low, _cast(low, v, np.int8), INT32) for v in (a, b))
    compared = low.node(name, _shape(out, order), BOOL, a=a, b=b)
    low.alias(out, order, low.node("logical_not", compared.bound, BOOL, input=compared) if kind == "ne" else compared)


def _comparison_operands(low: TosaLowering, op: Op, x: Value, other: Any, order: Order) -> tuple[Value, Value]:
    """Both operands as int32 (or float) in one unit."""
    a = operand(low, x, order)
    if not isinstance(other, Value):
        if a.dtype == FLOAT32:
            return a, low.const(np.full([1] * len(order), other), np.float32)
        if a.dtype == BOOL:
            return a, low.const(np.full([1] * len(order), bool(other)))
        bound = threshold(op.kind, float(other) / scale_of(x))
        wide = low.rescale(a, INT32, 1.0, zero_of(x)) if x.q is not None else _cast(low, a, INT32)
        return wide, low.const(np.full([1] * len(order), bound), np.int32)
    b = operand(low, other, order)
    if x.q is None or other.q is None:
        return (a, b) if a.dtype in (FLOAT32, BOOL) else (_cast(low, a, INT32), _cast(low, b, INT32))
    unit = max(scale_of(x), scale_of(other)) / 2.0 ** (20 if x.q.dtype.itemsize == 1 else 14)
    unit = scale_of(x) if scale_of(x) == scale_of(other) else unit
    scaled = [low.rescale(h, INT32, scale_of(v) / unit, zero_of(v)) for h, v in ((a, x), (b, other))]
    return scaled[0], scaled[1]


# ----------------------------------------------------------------------------------------------------- logic, bits


def _same_type_operands(low: TosaLowering, op: Op, order: Order, dtype: Any) -> tuple[Value, Value]:
    """Both operands in one type; a scalar becomes a tensor of one element."""
    operands = []
    for name in ("self", "other"):
        argument = op.args[name]
        if isinstance(argument, Value):
            operands.append(_cast(low, operand(low, argument, order), dtype))
        else:
            operands.append(low.const(np.full([1] * len(order), argument), dtype))
    return operands[0], operands[1]


def logical(low: TosaLowering, op: Op) -> None:
    """``logical_and`` and the like on bools, or on integers as bools."""
    out, order = result(op), _order(low, op)
    a, b = _same_type_operands(low, op, order, BOOL)
    low.alias(out, order, low.node(op.kind, _shape(out, order), BOOL, a=a, b=b))


def bitwise(low: TosaLowering, op: Op) -> None:
    out, order = result(op), _order(low, op)
    a, b = _same_type_operands(low, op, order, out.dtype)
    kind = op.kind.replace("bitwise", "logical") if out.dtype == BOOL else op.kind
    low.alias(out, order, low.node(kind, _shape(out, order), out.dtype, a=a, b=b))


def invert(low: TosaLowering, op: Op) -> None:
    """``logical_not`` and ``bitwise_not``."""
    x, out = op.args["self"], result(op)
    order = _order(low, op)
    tensor = low.get(x, order)
    kind = "logical_not" if op.kind == "logical_not" or out.dtype == BOOL else "bitwise_not"
    tensor = _cast(low, tensor, BOOL) if kind == "logical_not" else tensor
    low.alias(out, order, low.node(kind, tensor.bound, tensor.dtype, input=tensor))


def shift(low: TosaLowering, op: Op) -> None:
    """Shifts; an amount of at least the bit width leaves the sign (right) or zero (left)."""
    out, order = result(op), _order(low, op)
    a, b = _same_type_operands(low, op, order, out.dtype)
    shape, max_shift = _shape(out, order), 8 * (out.dtype.itemsize if out.dtype is not None else 4) - 1
    out_of_range = None if b.constant else _out_of_range(low, b, max_shift)
    if out_of_range is not None:
        limit = low.const(np.full([1] * len(order), max_shift), out.dtype)
        b = low.node("select", b.bound, b.dtype, condition=out_of_range, on_true=limit, on_false=b)
    if op.kind == "bitwise_right_shift":
        low.alias(out, order, low.node("arithmetic_right_shift", shape, out.dtype, a=a, b=b, round=False))
        return
    shifted = low.node("logical_left_shift", shape, out.dtype, a=a, b=b)
    if out_of_range is not None:
        zero = low.const(np.zeros([1] * len(order)), out.dtype)
        shifted = low.node("select", shape, out.dtype, condition=out_of_range, on_true=zero, on_false=shifted)
    low.alias(out, order, shifted)


def _out_of_range(low: TosaLowering, amounts: Value, max_shift: int) -> Value:
    """True where a shift amount is negative or above ``max_shift``."""
    wide, ones = _cast(low, amounts, INT32), [1] * len(amounts.bound)
    zero, limit = low.const(np.zeros(ones), np.int32), low.const(np.full(ones, max_shift), np.int32)
    negative = low.node("greater", wide.bound, BOOL, a=zero, b=wide)
    too_large = low.node("greater", wide.bound, BOOL, a=wide, b=limit)
    return low.node("logical_or", wide.bound, BOOL, a=negative, b=too_large)


# ---------------------------------------------------------------------------------------------------------- choice


def _select_operand(low: TosaLowering, op: Op, argument: Any, order: Order) -> Value:
    """An operand in the quantization of the result."""
    out = result(op)
    if not isinstance(argument, Value):
        return low.const(np.full([1] * len(order), quantize_scalar(argument, out)), out.dtype)
    if argument.constant and argument.q is None and argument.data is not None:
        flat = np.vectorize(lambda n: quantize_scalar(n, out), otypes=[out.dtype])(argument.data)
        return low.const(flat.reshape([1] * (len(order) - flat.ndim) + list(flat.shape)).transpose(order))
    return requantize_to(low, argument, out, operand(low, argument, order))


def where(low: TosaLowering, op: Op) -> None:
    """``where`` and ``masked_fill``."""
    out, order = result(op), _order(low, op)
    mask, first, second = ("condition", "self", "other") if op.kind == "where" else ("mask", "value", "self")
    condition = operand(low, op.args[mask], order)
    a, b = (_select_operand(low, op, op.args[name], order) for name in (first, second))
    selected = low.node("select", _shape(out, order), out.dtype, condition=condition, on_true=a, on_false=b)
    low.alias(out, order, selected)


def cast(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    if x.dtype == out.dtype and (x.q is None) == (out.q is None):
        copy(low, op)
        return
    order = _order(low, op)
    low.alias(out, order, _cast(low, low.get(x, order), out.dtype))
