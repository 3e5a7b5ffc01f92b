"""Integer softmax as one operator, so that no intermediate scale needs calibration.

``exp(x - max(x)) / sum``: subtracting the maximum makes all exponents non-positive, so an exponential is a table of at
most 256 entries (8 bits), or the product of two tables, of the high and the low byte (16 bits): ``exp(256 h + l) =
exp(256 h) * exp(l)``. Exponentials are scaled so that their int32 sum does not overflow; long sums are computed as two
parts. The quotient is a multiplication by the normalized reciprocal of the sum (``fixed_point.reciprocal``) and a
per-row shift. TensorFlow Lite's and gemmlowp's integer softmax have the same structure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, identity

_MAX_ENTRY = fixed_point.MAX_VALUE * 2**fixed_point.FRACTION_BITS
_MAX_SINGLE_SUM, _SPLIT_BITS = 2048, 11  # exponentials whose sum fits int32; low bits dropped from longer sums
MAX_AXIS_SIZE = 1 << 17


def _shifted_exponentials(low: TosaLowering, op: Op) -> tuple[Value, Value, Order, int]:
    """Distances below the maximum, their exponentials, and the dimension order and axis."""
    x = op.args["self"]
    rank = len(x.shape)
    order = next((o for o in low.orders(x)), identity(rank))
    tensor = low.get(x, order) if rank else low.reshape(low.get(x), [1])
    axis = order.index(op.args["dim"] % rank) if rank else 0
    shape = [1 if a == axis else s for a, s in enumerate(tensor.bound)]
    maximum = low.node("reduce_max", shape, tensor.dtype, input=tensor, axis=axis)
    wide = [low.rescale(v, INT32, 1.0, zero_of(x)) for v in (tensor, maximum)]
    below = fixed_point.binary(low, "sub", wide[0], wide[1])
    return below, _exponentials(low, below, x, _max_exponential(tensor.bound[axis])), order, axis


def _max_exponential(count: int) -> float:
    """Largest exponential such that a sum of ``count`` fits 31 bits, or is computed in two parts."""
    return float(
        _MAX_ENTRY * fixed_point.MAX_VALUE
        if count > _MAX_SINGLE_SUM
        else min(_MAX_ENTRY * fixed_point.MAX_VALUE, (2**31 - 1) // count - 1)
    )


def _sum(low: TosaLowering, powers: Value, axis: int) -> tuple[Value, int]:
    """The sum, and the number of low bits dropped from it."""
    if powers.bound[axis] <= _MAX_SINGLE_SUM:
        return fixed_point.reduce_sum(low, powers, [axis]), 0
    upper = fixed_point.shift_right(low, powers, _SPLIT_BITS)
    lower = fixed_point.binary(low, "sub", powers, fixed_point.shift_left(low, upper, _SPLIT_BITS))
    sums = [fixed_point.reduce_sum(low, part, [axis]) for part in (upper, lower)]
    return fixed_point.binary(low, "add", sums[0], fixed_point.shift_right(low, sums[1], _SPLIT_BITS)), _SPLIT_BITS


def _exponentials(low: TosaLowering, below: Value, x: Value, largest: float) -> Value:
    """``largest * exp(scale * below)`` for ``below`` from -255 (or -65535) to 0, exact to the last bit or two."""
    steps = np.arange(-255, 1)
    if x.dtype is not None and x.dtype.itemsize == 1:
        return fixed_point.exact_table(
            low, fixed_point.binary(low, "add", below, 127), largest * np.exp(steps * scale_of(x))
        )
    # exp(256 h + l) = exp(256 h) * exp(l), with h and l from -255 to 0.
    upper = fixed_point.shift_right(low, fixed_point.binary(low, "add", below, 255), 8, rounded=False)
    lower = fixed_point.binary(low, "sub", below, fixed_point.shift_left(low, upper, 8))
    parts = [
        fixed_point.exact_table(
            low, fixed_point.binary(low, "add", part, 127), top * np.exp(steps * scale_of(x) * part_scale)
        )
        for part, part_scale, top in (
            (upper, 256, _MAX_ENTRY),
            (lower, 1, largest * 2**fixed_point.FRACTION_BITS / _MAX_ENTRY),
        )
    ]
    return fixed_point.mul(low, parts[0], parts[1], shift=fixed_point.FRACTION_BITS)


def softmax(low: TosaLowering, op: Op) -> None:
    """Exponentials times the reciprocal of their sum."""
    _, powers, order, axis = _shifted_exponentials(low, op)
    total, dropped = _sum(low, powers, axis)
    inverse, shift = fixed_point.reciprocal(low, total)
    # powers < 2**22 and inverse <= 2**22: 44 bits, reduced to 30. In units of 2**-16 after the shift.
    quotient = fixed_point.mul(low, powers, inverse, shift=14)
    bits = fixed_point.subtract_from(low, 22 + dropped, shift)
    _finish(low, op, order, fixed_point.shift_right(low, quotient, bits), 2.0**-16)


def log_softmax(low: TosaLowering, op: Op) -> None:
    """The distance below the maximum minus the logarithm of the sum of exponentials."""
    below, powers, order, axis = _shifted_exponentials(low, op)
    x = op.args["self"]
    count = below.bound[axis]
    if count == 1:  # log_softmax of one element is zero
        _finish(low, op, order, below, scale_of(x))
        return
    total, dropped = _sum(low, powers, axis)
    largest = _max_exponential(count) / 2.0**dropped
    max_distance = 65535 if x.dtype.itemsize == 2 else 255
    unit = (max_distance * scale_of(x) + 24) / 2.0**29
    log = low.rescale(fixed_point.log(low, total), INT32, 2.0**-22 / unit)
    log = fixed_point.binary(low, "sub", log, round(np.log(largest) / unit))
    scaled = low.rescale(below, INT32, scale_of(x) / unit)
    _finish(low, op, order, fixed_point.binary(low, "sub", scaled, log), unit)


def _finish(low: TosaLowering, op: Op, order: Order, acc: Value, unit: float) -> None:
    out = result(op)
    acc = low.requantize(acc, out, unit, op.args.get("limits"))
    low.alias(out, order, acc if out.shape else low.reshape(acc, []))


def _check_axis_size(op: Op, target: Any) -> object:
    x = op.args["self"]
    count = x.bound[op.args["dim"] % len(x.shape)] if x.shape else 1
    return count if count > MAX_AXIS_SIZE else OK


max_axis_size = Rule(f"at most {MAX_AXIS_SIZE} elements may be summed", _check_axis_size)
