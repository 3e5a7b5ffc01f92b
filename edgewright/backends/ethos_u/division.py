"""Division of tensors, remainders, and rounding to integers, in fixed point.

TOSA's integer profile has no tensor division on Ethos-U. An 8-bit divisor has 256 values, so its reciprocal is an exact
table; a 16-bit divisor goes through ``fixed_point.reciprocal`` (normalize, interpolated table, shift). Quotients have
about 20 correct bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.elementwise import operand, with_scalar_table
from edgewright.backends.ethos_u.lookup_table import MAX_ERROR_STEPS, Lower, is_scalar_constant, scalar_value, unary
from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import common_order

_ROUNDING_SLACK = 2  # rounding error in last bits below an exact integer


def _quotient(low: TosaLowering, a: Value, b: Value, quantized: tuple[Value, Value]) -> tuple[Value, float]:
    """``a / b`` of int32 tensors without zero points: int32 values and their unit."""
    ratio = scale_of(quantized[0]) / scale_of(quantized[1])
    if quantized[1].dtype is not None and quantized[1].dtype.itemsize == 1:
        return _divide_by_int8(low, a, b, quantized[1]), ratio * 32 / 2.0**fixed_point.FRACTION_BITS
    magnitude = low.node("abs", b.bound, INT32, input=b)
    divisor = fixed_point.binary(low, "maximum", magnitude, 1)
    inverse, shift = fixed_point.reciprocal(low, divisor)  # 1 / size = inverse * 2**(shift - 52)
    is_negative = fixed_point.binary(low, "minimum", fixed_point.binary(low, "maximum", b, -1), 0)
    b_sign = fixed_point.binary(low, "add", fixed_point.shift_left(low, is_negative, 1), 1)  # 1 for zero as well
    product = fixed_point.mul(low, fixed_point.mul(low, a, b_sign), inverse, shift=8)  # 15 + 22 bits, shifted to 29
    quotient = fixed_point.shift_right(low, product, fixed_point.subtract_from(low, 30, shift))
    # Division by zero saturates.
    is_zero = fixed_point.binary(low, "sub", divisor, magnitude)
    saturated = fixed_point.shift_left(low, fixed_point.mul(low, _sign(low, a), is_zero), 29)
    return fixed_point.binary(low, "add", quotient, saturated), ratio * QUOTIENT_STEP


QUOTIENT_STEP = 2.0**-14  # unit of a 16-bit quotient, in steps of the dividend over steps of the divisor


def _sign(low: TosaLowering, x: Value) -> Value:
    return fixed_point.binary(low, "minimum", fixed_point.binary(low, "maximum", x, -1), 1)


def _divide_by_int8(low: TosaLowering, a: Value, b: Value, quantized: Value) -> Value:
    """Multiply by one of 256 reciprocals of 17 bits; the reciprocal of zero is 32 times the largest other."""
    steps = np.arange(-128, 128) - zero_of(quantized)
    values = (
        np.where(steps == 0, fixed_point.MAX_VALUE * 32, 1 / np.where(steps == 0, 1, steps))
        * 2.0**fixed_point.FRACTION_BITS
        / 32
    )
    index = fixed_point.binary(low, "add", b, zero_of(quantized))
    return fixed_point.mul(low, a, fixed_point.exact_table(low, index, values))


def _widen_operands(low: TosaLowering, op: Op, a: Value, b: Value) -> tuple[tuple[int, ...], Value, Value]:
    order = common_order(low, op, len(result(op).shape))
    first, second = (low.rescale(operand(low, v, order), INT32, 1.0, zero_of(v)) for v in (a, b))
    return order, first, second


def round_to_integer(low: TosaLowering, x: Value, unit: float, kind: str, max_value: float) -> tuple[Value, float]:
    """Round ``x``, whose unit is ``unit``, to integers: ``floor``, ``ceil``, ``trunc`` or ``round``; and the new unit.

    ``max_value``: the largest real magnitude.
    """
    if unit >= 1:  # steps of one or more are not rounded
        return x, unit
    return _round(low, x, unit, kind, max_value), 1.0


def _round(low: TosaLowering, x: Value, unit: float, kind: str, max_value: float) -> Value:
    bits = min(max(math.floor(28 - math.log2(max(max_value, 2.0**-6))), 0), 24)
    fixed = low.rescale(x, INT32, unit * 2.0**bits)
    slack = min(_ROUNDING_SLACK, (1 << bits) // 4)
    if kind == "round":
        return fixed_point.shift_right(low, fixed, bits) if bits else fixed
    down = _floor(low, fixed, bits, slack)
    if kind == "floor":
        return down
    up = _negate(low, _floor(low, _negate(low, fixed), bits, slack))
    if kind == "ceil":
        return up
    # Towards zero: floor of the positive part plus ceiling of the negative part.
    parts = fixed_point.binary(low, "maximum", down, 0), fixed_point.binary(low, "minimum", up, 0)
    return fixed_point.binary(low, "add", *parts)


def _negate(low: TosaLowering, x: Value) -> Value:
    return fixed_point.subtract_from(low, 0, x)


def _floor(low: TosaLowering, fixed: Value, bits: int, slack: int) -> Value:
    raised = fixed_point.binary(low, "add", fixed, slack) if slack else fixed
    return fixed_point.shift_right(low, raised, bits, rounded=False) if bits else raised


def _divide(low: TosaLowering, op: Op) -> None:
    a, b = op.args["self"], op.args["other"]
    order, first, second = _widen_operands(low, op, a, b)
    mode = "floor" if op.kind == "floor_divide" else op.args.get("rounding_mode")
    quotient, unit = _quotient(low, first, second, (a, b))
    if mode is not None:
        quotient, unit = round_to_integer(low, quotient, unit, mode, unit * 2.0**31)
    low.finish(op, order, quotient, unit)


def _remainder(low: TosaLowering, op: Op) -> None:
    """``a`` minus the quotient, rounded down (``fmod``: towards zero), times ``b``; zero for a zero divisor."""
    a, b = op.args["self"], op.args["other"]
    order, first, second = _widen_operands(low, op, a, b)
    quotient, unit = _quotient(low, first, second, (a, b))
    multiples = _round(low, quotient, unit, _MODES[op.kind], unit * 2.0**31)
    nonzero = fixed_point.binary(low, "minimum", low.node("abs", second.bound, INT32, input=second), 1)
    rest, rest_unit = _subtract_product(
        low, first, scale_of(a), fixed_point.mul(low, multiples, second), scale_of(b), scale_of(b)
    )
    low.finish(op, order, fixed_point.mul(low, rest, nonzero), rest_unit)


def _subtract_product(
    low: TosaLowering, a: Value, unit: float, product: Value, other: float, divisor_step: float
) -> tuple[Value, float]:
    """``a`` minus the product in a unit that both fit. ``divisor_step``: 2**-15 of the divisor."""
    common = 2.0**-12 * max(unit, divisor_step)
    rescaled = low.rescale(product, INT32, other / common)
    return fixed_point.binary(low, "sub", low.rescale(a, INT32, unit / common), rescaled), common


_MODES = {"remainder": "floor", "fmod": "trunc", "floor_divide": "floor"}


def _divide_by_scalar(low: TosaLowering, op: Op) -> None:
    """16-bit division by a scalar with rounding: too many steps for a table."""
    x, divisor, out = op.args["self"], float(scalar_value(op.args["other"])), result(op)
    order = common_order(low, op, len(out.shape))
    wide = low.rescale(low.get(x, order), INT32, 1.0)
    step = scale_of(x) / abs(divisor)
    dividend = wide if divisor > 0 else _negate(low, wide)
    mode = _MODES.get(op.kind) or op.args["rounding_mode"]
    if op.kind in ("div", "floor_divide"):
        low.finish(op, order, *round_to_integer(low, dividend, step, mode, step * 2.0**15))
        return
    multiples = _round(low, dividend, step, mode, step * 2.0**15)
    rest, unit = _subtract_product(low, dividend, scale_of(x), multiples, abs(divisor), abs(divisor) / 2.0**15)
    low.finish(op, order, rest if divisor > 0 else _negate(low, rest), unit)


def is_stepped_int16(op: Op) -> bool:
    """True for a rounded division of a 16-bit tensor by a scalar."""
    x = op.args.get("self")
    return _is_stepped(op) and isinstance(x, Value) and x.q is not None and x.q.dtype.itemsize == 2


def _with_scalar_case(lower: Lower) -> Lower:
    """``lower`` for two tensors; for a scalar divisor a table, or fixed point if the result is stepped."""
    lower_tensors = with_scalar_table(lower)

    def choose(low: TosaLowering, op: Op) -> None:
        divisor = op.args["other"]
        is_scalar = not isinstance(divisor, Value) or is_scalar_constant(divisor)
        (_divide_by_scalar if is_scalar and is_stepped_int16(op) else lower_tensors)(low, op)

    return choose


divide, remainder = _with_scalar_case(_divide), _with_scalar_case(_remainder)


def rounding(kind: str) -> Lower:
    """``floor`` and the like: a table for 8 bits, arithmetic for 16 bits, where a table has too few entries."""
    return _table_or_arithmetic(kind, lambda low, x, unit, maximum: round_to_integer(low, x, unit, kind, maximum))


def sign(low: TosaLowering, op: Op) -> None:
    _table_or_arithmetic("", lambda low, x, unit, maximum: (_sign(low, x), 1.0))(low, op)


def reciprocal(low: TosaLowering, op: Op) -> None:
    """A table for 8 bits; a quotient for 16 bits, as no table is steep enough near zero."""
    x, out = op.args["self"], result(op)
    if x.q is None or x.q.dtype.itemsize == 1:
        unary("reciprocal")(low, op)
        return
    order = common_order(low, op, len(out.shape))
    wide = low.rescale(low.get(x, order), INT32, 1.0)
    one = Value("one", x.dtype, x.shape, x.dim_order, q=replace(x.q, scale=2.0**-14))
    quotient, unit = _quotient(low, fixed_point.scalar_like(low, wide, 1 << 14), wide, (one, x))
    low.finish(op, order, quotient, unit)


WideFunction = Callable[[TosaLowering, Value, float, float], tuple[Value, float]]


def _table_or_arithmetic(float_node: str, arithmetic: WideFunction) -> Lower:
    table = unary(float_node)

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        if x.q is None or x.q.dtype.itemsize == 1:
            table(low, op)
            return
        order = common_order(low, op, len(out.shape))
        wide = low.rescale(low.get(x, order), INT32, 1.0, 0)
        low.finish(op, order, *arithmetic(low, wide, scale_of(x), scale_of(x) * 2.0**15))

    return lower


# ----------------------------------------------------------------------------------------------------------- rules


def _check_precision(op: Op, target: Any) -> object:
    a, b, out = op.args["self"], op.args.get("other", op.args["self"]), result(op)
    if not isinstance(b, Value) or b.q is None or out.q is None or b.q.dtype.itemsize == 1 or _is_stepped(op):
        return OK
    unit = 2.0**-14 if op.kind == "reciprocal" else scale_of(a)
    off = unit / scale_of(b) * QUOTIENT_STEP / 2 / scale_of(out)
    return OK if off <= MAX_ERROR_STEPS else f"{off:.0f} steps off at worst"


def _is_stepped(op: Op) -> bool:
    return op.kind in _MODES or op.args.get("rounding_mode") is not None


quotient_precision = Rule(f"quotients by 16-bit divisors must be accurate to {MAX_ERROR_STEPS} steps", _check_precision)


def _check_divisor(op: Op, target: Any) -> object:
    divisor = op.args["other"]
    if isinstance(divisor, Value) and not is_scalar_constant(divisor):
        return OK
    value = float(scalar_value(divisor))
    return OK if value and math.isfinite(value) else value


nonzero_divisor = Rule("a scalar divisor must be finite and not zero", _check_divisor)


def _check_remainder(op: Op, target: Any) -> object:
    operands = [v for v in (op.args["self"], op.args["other"]) if isinstance(v, Value) and not is_scalar_constant(v)]
    return "int16" if len(operands) == 2 and any(v.q is not None and v.q.dtype.itemsize == 2 for v in operands) else OK


# The integer part of a 16-bit quotient can be off by one.
int8_remainder = Rule("remainders of two tensors must be 8-bit", _check_remainder)
