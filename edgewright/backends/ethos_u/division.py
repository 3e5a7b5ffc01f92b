"""Division of two tensors, its remainders, and rounding to whole numbers: fixed point with some 20 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.elementwise import operand, with_numbers
from edgewright.backends.ethos_u.lookup_table import WORST, Lower, number, single, unary
from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import common_order

_NEAR = 2  # last places of a fixed-point number that may be missing below a whole one


def _quotient(low: TosaLowering, a: Value, b: Value, of: tuple[Value, Value]) -> tuple[Value, float]:
    """``a / b`` of 32-bit integers without zero points: 32-bit integers, and what one is worth in real numbers."""
    ratio = scale_of(of[0]) / scale_of(of[1])
    if of[1].dtype is not None and of[1].dtype.itemsize == 1:
        return _by_bytes(low, a, b, of[1]), ratio * 32 / 2.0**fixed_point.FINE
    given = low.node("abs", b.bound, INT32, input=b)
    size = fixed_point.both(low, "maximum", given, 1)
    inverse, shift = fixed_point.reciprocal(low, size)  # 1 / size = inverse * 2**(shift - 52)
    below = fixed_point.both(low, "minimum", fixed_point.both(low, "maximum", b, -1), 0)
    sign = fixed_point.both(low, "add", fixed_point.left(low, below, 1), 1)  # 1 of zero, too
    share = fixed_point.mul(low, fixed_point.mul(low, a, sign), inverse, shift=8)  # 15 and 22 bits, of which 29 stay
    made = fixed_point.right(low, share, fixed_point.minus(low, 30, shift))
    # Over zero: the end.
    none = fixed_point.both(low, "sub", size, given)
    beyond = fixed_point.left(low, fixed_point.mul(low, _sign(low, a), none), 29)
    return fixed_point.both(low, "add", made, beyond), ratio * QUOTIENT


QUOTIENT = 2.0**-14  # what the last place of a quotient of 16 bits is worth, in steps of one over steps of the other


def _sign(low: TosaLowering, x: Value) -> Value:
    return fixed_point.both(low, "minimum", fixed_point.both(low, "maximum", x, -1), 1)


def _by_bytes(low: TosaLowering, a: Value, b: Value, of: Value) -> Value:
    """A reciprocal for each of 256 divisors, to 17 bits; 32 times as much as any other for none at all."""
    steps = np.arange(-128, 128) - zero_of(of)
    values = np.where(steps == 0, fixed_point.TOP * 32, 1 / np.where(steps == 0, 1, steps)) * 2.0**fixed_point.FINE / 32
    index = fixed_point.both(low, "add", b, zero_of(of))
    return fixed_point.mul(low, a, fixed_point.fine(low, index, values))


def _wide(low: TosaLowering, op: Op, a: Value, b: Value) -> tuple[tuple[int, ...], Value, Value]:
    order = common_order(low, op, len(result(op).shape))
    first, second = (low.rescale(operand(low, v, order), INT32, 1.0, zero_of(v)) for v in (a, b))
    return order, first, second


def whole(low: TosaLowering, x: Value, unit: float, kind: str, most: float) -> tuple[Value, float]:
    """``x`` in units that are real numbers, rounded to whole ones: down (``floor``), up, to zero (``trunc``) or to the
    nearest; and its unit then. ``most``: the largest magnitude of the real numbers.
    """
    if unit >= 1:  # no less than a step of its own
        return x, unit
    return _rounded(low, x, unit, kind, most), 1.0


def _rounded(low: TosaLowering, x: Value, unit: float, kind: str, most: float) -> Value:
    bits = min(max(math.floor(28 - math.log2(max(most, 2.0**-6))), 0), 24)
    exact = low.rescale(x, INT32, unit * 2.0**bits)
    near = min(_NEAR, (1 << bits) // 4)
    if kind == "round":
        return fixed_point.right(low, exact, bits) if bits else exact
    down = _down(low, exact, bits, near)
    if kind == "floor":
        return down
    up = _negative(low, _down(low, _negative(low, exact), bits, near))
    if kind == "ceil":
        return up
    # Towards zero: down, but not below zero; up, but not above.
    parts = fixed_point.both(low, "maximum", down, 0), fixed_point.both(low, "minimum", up, 0)
    return fixed_point.both(low, "add", *parts)


def _negative(low: TosaLowering, x: Value) -> Value:
    return fixed_point.minus(low, 0, x)


def _down(low: TosaLowering, exact: Value, bits: int, near: int) -> Value:
    raised = fixed_point.both(low, "add", exact, near) if near else exact
    return fixed_point.right(low, raised, bits, rounded=False) if bits else raised


def _divide(low: TosaLowering, op: Op) -> None:
    a, b = op.args["self"], op.args["other"]
    order, first, second = _wide(low, op, a, b)
    mode = "floor" if op.kind == "floor_divide" else op.args.get("rounding_mode")
    made, unit = _quotient(low, first, second, (a, b))
    if mode is not None:
        made, unit = whole(low, made, unit, mode, unit * 2.0**31)
    low.finish(op, order, made, unit)


def _remainder(low: TosaLowering, op: Op) -> None:
    """What the quotient, rounded down (``fmod``: to zero), leaves. Nothing, where there is no divisor."""
    a, b = op.args["self"], op.args["other"]
    order, first, second = _wide(low, op, a, b)
    quotient, unit = _quotient(low, first, second, (a, b))
    times = _rounded(low, quotient, unit, _MODES[op.kind], unit * 2.0**31)
    present = fixed_point.both(low, "minimum", low.node("abs", second.bound, INT32, input=second), 1)
    rest, fine = _left_over(low, first, scale_of(a), fixed_point.mul(low, times, second), scale_of(b), scale_of(b))
    low.finish(op, order, fixed_point.mul(low, rest, present), fine)


def _left_over(
    low: TosaLowering, a: Value, unit: float, product: Value, other: float, most: float
) -> tuple[Value, float]:
    """``a`` less the product, each in its unit, in one that both have room in. ``most``: of the divisor, 2**-15."""
    fine = 2.0**-12 * max(unit, most)
    taken = low.rescale(product, INT32, other / fine)
    return fixed_point.both(low, "sub", low.rescale(a, INT32, unit / fine), taken), fine


_MODES = {"remainder": "floor", "fmod": "trunc", "floor_divide": "floor"}


def _by_number(low: TosaLowering, op: Op) -> None:
    """Of 16 bits, with a number: as many steps as these have are too many for tables."""
    x, divisor, out = op.args["self"], float(number(op.args["other"])), result(op)
    order = common_order(low, op, len(out.shape))
    wide = low.rescale(low.get(x, order), INT32, 1.0)
    step = scale_of(x) / abs(divisor)
    given = wide if divisor > 0 else _negative(low, wide)
    mode = _MODES.get(op.kind) or op.args["rounding_mode"]
    if op.kind in ("div", "floor_divide"):
        low.finish(op, order, *whole(low, given, step, mode, step * 2.0**15))
        return
    times = _rounded(low, given, step, mode, step * 2.0**15)
    rest, fine = _left_over(low, given, scale_of(x), times, abs(divisor), abs(divisor) / 2.0**15)
    low.finish(op, order, rest if divisor > 0 else _negative(low, rest), fine)


def by_steps(op: Op) -> bool:
    """True for a function of 16 bits and a number that rises in steps."""
    x = op.args.get("self")
    return _stepped(op) and isinstance(x, Value) and x.q is not None and x.q.dtype.itemsize == 2


def _either(lower: Lower) -> Lower:
    """``lower`` for two tensors; for a number, a table if it can be one."""
    other = with_numbers(lower)

    def choose(low: TosaLowering, op: Op) -> None:
        given = op.args["other"]
        plain = not isinstance(given, Value) or single(given)
        (_by_number if plain and by_steps(op) else other)(low, op)

    return choose


divide, remainder = _either(_divide), _either(_remainder)


def to_whole(kind: str) -> Lower:
    """``floor`` and the like: a table for 8 bits, arithmetic for 16, where steps are too many for one."""
    return _wide_only(kind, lambda low, x, unit, most: whole(low, x, unit, kind, most))


def sign(low: TosaLowering, op: Op) -> None:
    _wide_only("", lambda low, x, unit, most: (_sign(low, x), 1.0))(low, op)


def reciprocal(low: TosaLowering, op: Op) -> None:
    """A table for 8 bits; for 16, a quotient: no table is steep enough next to zero."""
    x, out = op.args["self"], result(op)
    if x.q is None or x.q.dtype.itemsize == 1:
        unary("reciprocal")(low, op)
        return
    order = common_order(low, op, len(out.shape))
    wide = low.rescale(low.get(x, order), INT32, 1.0)
    one = Value("one", x.dtype, x.shape, x.dim_order, q=replace(x.q, scale=2.0**-14))
    made, unit = _quotient(low, fixed_point.full(low, wide, 1 << 14), wide, (one, x))
    low.finish(op, order, made, unit)


Made = Callable[[TosaLowering, Value, float, float], tuple[Value, float]]


def _wide_only(float_node: str, made: Made) -> Lower:
    table = unary(float_node)

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        if x.q is None or x.q.dtype.itemsize == 1:
            table(low, op)
            return
        order = common_order(low, op, len(out.shape))
        wide = low.rescale(low.get(x, order), INT32, 1.0, 0)
        low.finish(op, order, *made(low, wide, scale_of(x), scale_of(x) * 2.0**15))

    return lower


# ----------------------------------------------------------------------------------------------------------- rules


def _short(op: Op, target: Any) -> object:
    a, b, out = op.args["self"], op.args.get("other", op.args["self"]), result(op)
    if not isinstance(b, Value) or b.q is None or out.q is None or b.q.dtype.itemsize == 1 or _stepped(op):
        return OK
    unit = 2.0**-14 if op.kind == "reciprocal" else scale_of(a)
    off = unit / scale_of(b) * QUOTIENT / 2 / scale_of(out)
    return OK if off <= WORST else f"{off:.0f} steps off at worst"


def _stepped(op: Op) -> bool:
    return op.kind in _MODES or op.args.get("rounding_mode") is not None


reached = Rule(f"the quotient of 16-bit integers must be large enough for {WORST} last places", _short)


def _none(op: Op, target: Any) -> object:
    divisor = op.args["other"]
    if isinstance(divisor, Value) and not single(divisor):
        return OK
    known = float(number(divisor))
    return OK if known and math.isfinite(known) else known


some_divisor = Rule("a divisor that is a number must be finite, and not zero", _none)


def _wide_pair(op: Op, target: Any) -> object:
    held = [v for v in (op.args["self"], op.args["other"]) if isinstance(v, Value) and not single(v)]
    return "int16" if len(held) == 2 and any(v.q is not None and v.q.dtype.itemsize == 2 for v in held) else OK


# Of a quotient of 15 bits with 14 more, a whole part is not always right.
narrow_pair = Rule("remainders of two tensors must be of 8 bits", _wide_pair)
