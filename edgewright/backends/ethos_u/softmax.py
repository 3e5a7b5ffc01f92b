"""Softmax as one operator: no scale between its steps has to be found by calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lower import INT32, TosaLowering, result, scale_of, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, identity

_MOST = fixed_point.TOP * 2**fixed_point.FINE
_LONG, _LESS = 2048, 11  # exponentials that have room in one sum; bits that longer sums do without
LONGEST = 1 << 17


def _prepared(low: TosaLowering, op: Op) -> tuple[Value, Value, Order, int]:
    """Distances below the largest, their exponentials, and the order and axis they are held in."""
    x = op.args["self"]
    rank = len(x.shape)
    order = next((o for o in low.orders(x)), identity(rank))
    held = low.get(x, order) if rank else low.reshaped(low.get(x), [1])
    axis = order.index(op.args["dim"] % rank) if rank else 0
    shape = [1 if a == axis else s for a, s in enumerate(held.bound)]
    top = low.node("reduce_max", shape, held.dtype, input=held, axis=axis)
    wide = [low.rescale(v, INT32, 1.0, zero_of(x)) for v in (held, top)]
    below = fixed_point.both(low, "sub", wide[0], wide[1])
    return below, _exponentials(low, below, x, _room(held.bound[axis])), order, axis


def _room(count: int) -> float:
    """What the largest exponential is: a sum of ``count`` fits into 31 bits, or is made in two halves."""
    return float(_MOST * fixed_point.TOP if count > _LONG else min(_MOST * fixed_point.TOP, (2**31 - 1) // count - 1))


def _total(low: TosaLowering, powers: Value, axis: int) -> tuple[Value, int]:
    """The sum, without so many of its last bits."""
    if powers.bound[axis] <= _LONG:
        return fixed_point.summed(low, powers, [axis]), 0
    upper = fixed_point.right(low, powers, _LESS)
    lower = fixed_point.both(low, "sub", powers, fixed_point.left(low, upper, _LESS))
    sums = [fixed_point.summed(low, part, [axis]) for part in (upper, lower)]
    return fixed_point.both(low, "add", sums[0], fixed_point.right(low, sums[1], _LESS)), _LESS


def _exponentials(low: TosaLowering, below: Value, x: Value, room: float) -> Value:
    """``room * exp(scale * below)``, of ``below`` from -255 (or -65535) to 0: exact to the last bit or two."""
    steps = np.arange(-255, 1)
    if x.dtype is not None and x.dtype.itemsize == 1:
        return fixed_point.fine(low, fixed_point.both(low, "add", below, 127), room * np.exp(steps * scale_of(x)))
    # exp(256 h + l) is the product of two: l and h from -255 to 0.
    upper = fixed_point.right(low, fixed_point.both(low, "add", below, 255), 8, rounded=False)
    lower = fixed_point.both(low, "sub", below, fixed_point.left(low, upper, 8))
    parts = [
        fixed_point.fine(low, fixed_point.both(low, "add", part, 127), most * np.exp(steps * scale_of(x) * each))
        for part, each, most in ((upper, 256, _MOST), (lower, 1, room * 2**fixed_point.FINE / _MOST))
    ]
    return fixed_point.mul(low, parts[0], parts[1], shift=fixed_point.FINE)


def softmax(low: TosaLowering, op: Op) -> None:
    """Exponentials over their sum: by the sum's reciprocal, and a shift for each sum."""
    _, powers, order, axis = _prepared(low, op)
    total, less = _total(low, powers, axis)
    inverse, shift = fixed_point.reciprocal(low, total)
    # powers < 2**22 and inverse <= 2**22: 44 bits, of which 30 stay. In units of 2**-16 when shifted.
    share = fixed_point.mul(low, powers, inverse, shift=14)
    bits = fixed_point.minus(low, 22 + less, shift)
    _finish(low, op, order, fixed_point.right(low, share, bits), 2.0**-16)


def log_softmax(low: TosaLowering, op: Op) -> None:
    """The distance below the largest, less the logarithm of the sum of exponentials."""
    below, powers, order, axis = _prepared(low, op)
    x = op.args["self"]
    count = below.bound[axis]
    if count == 1:  # nothing below itself
        _finish(low, op, order, below, scale_of(x))
        return
    total, less = _total(low, powers, axis)
    room = _room(count) / 2.0**less
    spread = 65535 if x.dtype.itemsize == 2 else 255
    unit = (spread * scale_of(x) + 24) / 2.0**29
    log = low.rescale(fixed_point.log(low, total), INT32, 2.0**-22 / unit)
    log = fixed_point.both(low, "sub", log, round(np.log(room) / unit))
    far = low.rescale(below, INT32, scale_of(x) / unit)
    _finish(low, op, order, fixed_point.both(low, "sub", far, log), unit)


def _finish(low: TosaLowering, op: Op, order: Order, acc: Value, unit: float) -> None:
    out = result(op)
    acc = low.narrow(acc, out, unit, op.args.get("limits"))
    low.alias(out, order, acc if out.shape else low.reshaped(acc, []))


def _many(op: Op, target: Any) -> object:
    x = op.args["self"]
    count = x.bound[op.args["dim"] % len(x.shape)] if x.shape else 1
    return count if count > LONGEST else OK


short_axis = Rule(f"at most {LONGEST} elements may be summed", _many)
