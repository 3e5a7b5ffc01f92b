"""Lowering of comparison, logic, bits and choice: what a U85 does on whole numbers and truth values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.elementwise import operand
from edgewright.backends.ethos_u.lower import BOOL, FLOAT32, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.movement import same, stored_as, stored_number
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order

Lower = Callable[[TosaLowering, Op], None]
NEVER = 1 << 30  # more than any stored integer


def _shape(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def _order(low: TosaLowering, op: Op) -> Order:
    return common_order(low, op, len(result(op).shape))


def _cast(low: TosaLowering, x: Value, dtype: Any) -> Value:
    if x.dtype == np.dtype(dtype):
        return x
    if x.constant and x.data is not None:
        return low.tensor(x.data.astype(dtype))
    return low.node("cast", x.bound, dtype, input=x, dtype=str(np.dtype(dtype)))


# ------------------------------------------------------------------------------------------------------ comparison


def threshold(kind: str, number: float) -> int:
    """The whole number to compare with instead of ``number``."""
    if kind in ("eq", "ne"):
        whole = round(number) if math.isfinite(number) else NEVER
        return int(whole) if math.isclose(whole, number, rel_tol=1e-6, abs_tol=1e-6) else NEVER
    if not math.isfinite(number):
        return NEVER if number > 0 else -NEVER
    near = round(number)
    exact = math.isclose(near, number, rel_tol=1e-6, abs_tol=1e-6)
    made = near if exact else math.floor(number) if kind in ("gt", "le") else math.ceil(number)
    return max(min(int(made), NEVER), -NEVER)


def compared(low: TosaLowering, op: Op) -> None:
    """Whole numbers in one unit. TOSA has "equal", "greater" and "greater or equal"; the rest are their opposites."""
    x, other, out, kind = op.args["self"], op.args["other"], result(op), op.kind
    order = _order(low, op)
    a, b = _numbers(low, op, x, other, order)
    if kind in ("lt", "le"):
        a, b = b, a
    name = {"eq": "equal", "ne": "equal", "gt": "greater", "lt": "greater"}.get(kind, "greater_equal")
    if a.dtype == BOOL:  # truth values have no order of their own
        a, b = (_cast(low, _cast(low, v, np.int8), INT32) for v in (a, b))
    made = low.node(name, _shape(out, order), BOOL, a=a, b=b)
    low.alias(out, order, low.node("logical_not", made.bound, BOOL, input=made) if kind == "ne" else made)


def _numbers(low: TosaLowering, op: Op, x: Value, other: Any, order: Order) -> tuple[Value, Value]:
    """Both operands as 32-bit (or real) numbers in one unit."""
    a = operand(low, x, order)
    if not isinstance(other, Value):
        if a.dtype == FLOAT32:
            return a, low.tensor(np.full([1] * len(order), other), np.float32)
        if a.dtype == BOOL:
            return a, low.tensor(np.full([1] * len(order), bool(other)))
        place = threshold(op.kind, float(other) / scale_of(x))
        wide = low.rescale(a, INT32, 1.0, zero_of(x)) if x.q is not None else _cast(low, a, INT32)
        return wide, low.tensor(np.full([1] * len(order), place), np.int32)
    b = operand(low, other, order)
    if x.q is None or other.q is None:
        return (a, b) if a.dtype in (FLOAT32, BOOL) else (_cast(low, a, INT32), _cast(low, b, INT32))
    unit = max(scale_of(x), scale_of(other)) / 2.0 ** (20 if x.q.dtype.itemsize == 1 else 14)
    unit = scale_of(x) if scale_of(x) == scale_of(other) else unit
    made = [low.rescale(h, INT32, scale_of(v) / unit, zero_of(v)) for h, v in ((a, x), (b, other))]
    return made[0], made[1]


# ----------------------------------------------------------------------------------------------------- logic, bits


def _both(low: TosaLowering, op: Op, order: Order, dtype: Any) -> tuple[Value, Value]:
    """Two operands of one type; a number becomes a tensor of one element."""
    made = []
    for name in ("self", "other"):
        given = op.args[name]
        if isinstance(given, Value):
            made.append(_cast(low, operand(low, given, order), dtype))
        else:
            made.append(low.tensor(np.full([1] * len(order), given), dtype))
    return made[0], made[1]


def logical(low: TosaLowering, op: Op) -> None:
    """``logical_and`` and the like: truth values, or whole numbers as such."""
    out, order = result(op), _order(low, op)
    a, b = _both(low, op, order, BOOL)
    low.alias(out, order, low.node(op.kind, _shape(out, order), BOOL, a=a, b=b))


def bitwise(low: TosaLowering, op: Op) -> None:
    out, order = result(op), _order(low, op)
    a, b = _both(low, op, order, out.dtype)
    kind = op.kind.replace("bitwise", "logical") if out.dtype == BOOL else op.kind
    low.alias(out, order, low.node(kind, _shape(out, order), out.dtype, a=a, b=b))


def negated(low: TosaLowering, op: Op) -> None:
    """``logical_not`` and ``bitwise_not``."""
    x, out = op.args["self"], result(op)
    order = _order(low, op)
    held = low.get(x, order)
    kind = "logical_not" if op.kind == "logical_not" or out.dtype == BOOL else "bitwise_not"
    held = _cast(low, held, BOOL) if kind == "logical_not" else held
    low.alias(out, order, low.node(kind, held.bound, held.dtype, input=held))


def shifted(low: TosaLowering, op: Op) -> None:
    """By more than there are bits, nothing is left but the sign (and that only to the right)."""
    out, order = result(op), _order(low, op)
    a, b = _both(low, op, order, out.dtype)
    shape, most = _shape(out, order), 8 * (out.dtype.itemsize if out.dtype is not None else 4) - 1
    beyond = None if b.constant else _beyond(low, b, most)
    if beyond is not None:
        last = low.tensor(np.full([1] * len(order), most), out.dtype)
        b = low.node("select", b.bound, b.dtype, condition=beyond, on_true=last, on_false=b)
    if op.kind == "bitwise_right_shift":
        low.alias(out, order, low.node("arithmetic_right_shift", shape, out.dtype, a=a, b=b, round=False))
        return
    made = low.node("logical_left_shift", shape, out.dtype, a=a, b=b)
    if beyond is not None:
        nothing = low.tensor(np.zeros([1] * len(order)), out.dtype)
        made = low.node("select", shape, out.dtype, condition=beyond, on_true=nothing, on_false=made)
    low.alias(out, order, made)


def _beyond(low: TosaLowering, places: Value, most: int) -> Value:
    """Where a number of bits is negative, or more than ``most``."""
    wide, one = _cast(low, places, INT32), [1] * len(places.bound)
    zero, last = low.tensor(np.zeros(one), np.int32), low.tensor(np.full(one, most), np.int32)
    few = low.node("greater", wide.bound, BOOL, a=zero, b=wide)
    many = low.node("greater", wide.bound, BOOL, a=wide, b=last)
    return low.node("logical_or", wide.bound, BOOL, a=few, b=many)


# ---------------------------------------------------------------------------------------------------------- choice


def _chosen(low: TosaLowering, op: Op, given: Any, order: Order) -> Value:
    """An operand as the result is stored."""
    out = result(op)
    if not isinstance(given, Value):
        return low.tensor(np.full([1] * len(order), stored_number(given, out)), out.dtype)
    if given.constant and given.q is None and given.data is not None:
        flat = np.vectorize(lambda n: stored_number(n, out), otypes=[out.dtype])(given.data)
        return low.tensor(flat.reshape([1] * (len(order) - flat.ndim) + list(flat.shape)).transpose(order))
    return stored_as(low, given, out, operand(low, given, order))


def where(low: TosaLowering, op: Op) -> None:
    """``where``, and ``masked_fill``, which names its operands otherwise."""
    out, order = result(op), _order(low, op)
    mask, first, second = ("condition", "self", "other") if op.kind == "where" else ("mask", "value", "self")
    condition = operand(low, op.args[mask], order)
    a, b = (_chosen(low, op, op.args[name], order) for name in (first, second))
    made = low.node("select", _shape(out, order), out.dtype, condition=condition, on_true=a, on_false=b)
    low.alias(out, order, made)


def cast(low: TosaLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    if x.dtype == out.dtype and (x.q is None) == (out.q is None):
        same(low, op)
        return
    order = _order(low, op)
    low.alias(out, order, _cast(low, low.get(x, order), out.dtype))
