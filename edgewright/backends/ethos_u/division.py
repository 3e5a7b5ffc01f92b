"""Division of two tensors, its remainders, and rounding to whole numbers: fixed point with some 20 bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.backends.ethos_u import fixed
from edgewright.backends.ethos_u.elementwise import operand, with_numbers
from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.ethos_u.tables import Lower, unary
from edgewright.ir.graph import Op, Value
from edgewright.passes.layout import common_order

_NEAR = 2  # last places of a fixed-point number that may be missing below a whole one


def _quotient(low: TosaLowering, a: Value, b: Value, of: tuple[Value, Value], most: float) -> tuple[Value, float]:
    """``a / b`` of 32-bit integers without zero points: 32-bit integers, and what one is worth in real numbers.

    ``most``: the largest result that matters; beyond it there is no more room.
    """
    ratio = scale_of(of[0]) / scale_of(of[1])
    if of[1].dtype is not None and of[1].dtype.itemsize == 1:
        return _by_bytes(low, a, b, of[1]), ratio * 32 / 2.0**fixed.FINE
    zero = fixed.both(low, "maximum", low.node("abs", b.bound, INT32, input=b), 1)
    inverse, shift = fixed.reciprocal(low, zero)  # 1 / b = inverse * 2**(shift - 52)
    sign = fixed.both(low, "minimum", fixed.both(low, "maximum", b, -1), 1)
    share = fixed.mul(low, fixed.mul(low, a, sign), inverse, shift=8)  # 16 and 22 bits, of which 30 stay
    # b from 1 to 2**15: shifts from 30 to 15. What is worth least of the result is 2**-16 of ``most``.
    less = min(max(math.floor(math.log2(most / ratio)), 0), 15)
    made = fixed.right(
        low, share, fixed.both(low, "maximum", fixed.both(low, "sub", fixed.full(low, shift, 29 + less - 14), shift), 0)
    )
    return made, ratio * 2.0 ** (8 - 52 + 29 + less - 14)


def _by_bytes(low: TosaLowering, a: Value, b: Value, of: Value) -> Value:
    """A reciprocal for each of 256 divisors, to 17 bits; 32 times as much as any other for none at all."""
    steps = np.arange(-128, 128) - zero_of(of)
    values = np.where(steps == 0, fixed.TOP * 32, 1 / np.where(steps == 0, 1, steps)) * 2.0**fixed.FINE / 32
    index = fixed.both(low, "add", b, zero_of(of))
    return fixed.mul(low, a, fixed.fine(low, index, values))


def _wide(low: TosaLowering, op: Op, a: Value, b: Value) -> tuple[tuple[int, ...], Value, Value]:
    order = common_order(low, op, len(result(op).shape))
    first, second = (low.rescale(operand(low, v, order), INT32, 1.0, zero_of(v)) for v in (a, b))
    return order, first, second


def _most(out: Value) -> float:
    assert out.q is not None
    return max(abs(out.q.qmin - zero_of(out)), abs(out.q.qmax - zero_of(out))) * scale_of(out)


def whole(low: TosaLowering, x: Value, unit: float, kind: str, most: float) -> Value:
    """``x`` in real units, rounded to whole numbers: down (``floor``), up, to zero (``trunc``) or to the nearest.

    ``most``: the largest magnitude of the real numbers.
    """
    bits = min(max(math.floor(29 - math.log2(max(most, 2.0**-6))), 0), 24)
    exact = low.rescale(x, INT32, unit * 2.0**bits)
    near = min(_NEAR, (1 << bits) // 4)
    if kind == "round":
        return fixed.right(low, exact, bits) if bits else exact
    down = _down(low, exact, bits, near)
    if kind == "floor":
        return down
    up = fixed.both(
        low, "sub", fixed.full(low, x, 0), _down(low, fixed.both(low, "sub", fixed.full(low, x, 0), exact), bits, near)
    )
    if kind == "ceil":
        return up
    # Towards zero: down, but not below zero; up, but not above.
    parts = fixed.both(low, "maximum", down, 0), fixed.both(low, "minimum", up, 0)
    return fixed.both(low, "add", *parts)


def _down(low: TosaLowering, exact: Value, bits: int, near: int) -> Value:
    raised = fixed.both(low, "add", exact, near) if near else exact
    return fixed.right(low, raised, bits, rounded=False) if bits else raised


def _divide(low: TosaLowering, op: Op) -> None:
    a, b, out = op.args["self"], op.args["other"], result(op)
    order, first, second = _wide(low, op, a, b)
    mode = "floor" if op.kind == "floor_divide" else op.args.get("rounding_mode")
    made, unit = _quotient(low, first, second, (a, b), _most(out))
    if mode is not None:
        made, unit = whole(low, made, unit, mode, unit * 2.0**31), 1.0
    low.finish(op, order, made, unit)


def _remainder(low: TosaLowering, op: Op) -> None:
    """What the quotient, rounded down (``fmod``: to zero), leaves."""
    a, b = op.args["self"], op.args["other"]
    order, first, second = _wide(low, op, a, b)
    ratio = scale_of(a) / scale_of(b)
    quotient, unit = _quotient(low, first, second, (a, b), 2.0**15)
    times = whole(low, quotient, unit, "floor" if op.kind == "remainder" else "trunc", unit * 2.0**31)
    fine = 2.0**-12 * min(scale_of(a), scale_of(b))  # a unit that both have room in
    fine = max(fine, max(scale_of(a), scale_of(b) / max(1.0, 1 / ratio)) * 2.0**-20)
    product = low.rescale(fixed.mul(low, times, second), INT32, scale_of(b) / fine)
    rest = fixed.both(low, "sub", low.rescale(first, INT32, scale_of(a) / fine), product)
    low.finish(op, order, rest, fine)


divide, remainder = with_numbers(_divide), with_numbers(_remainder)


def to_whole(kind: str) -> Lower:
    """``floor`` and the like: a table for 8 bits, arithmetic for 16, where steps are too many for one."""
    return _wide_only(kind, lambda low, x, unit, most: whole(low, x, unit, kind, most), 1.0)


def sign(low: TosaLowering, op: Op) -> None:
    def limits(low: TosaLowering, x: Value, unit: float, most: float) -> Value:
        return fixed.both(low, "minimum", fixed.both(low, "maximum", x, -1), 1)

    _wide_only("", limits, 1.0)(low, op)


def _wide_only(float_node: str, made: Callable[[TosaLowering, Value, float, float], Value], unit: float) -> Lower:
    table = unary(float_node)

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        if x.q is None or x.q.dtype.itemsize == 1:
            table(low, op)
            return
        order = common_order(low, op, len(out.shape))
        wide = low.rescale(low.get(x, order), INT32, 1.0, 0)
        low.finish(op, order, made(low, wide, scale_of(x), scale_of(x) * 2.0**15), unit)

    return lower
