"""Lowering of arithmetic: functions of two tensors, and of one through tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import FLOAT32, INT16, INT32, TosaLowering, result, scale_of, zero_of
from edgewright.ir.graph import Array, Op, QParams, Value
from edgewright.ir.opset import OPS
from edgewright.passes.layout import Order, common_order

Lower = Callable[[TosaLowering, Op], None]


def operand(low: TosaLowering, value: Value, order: Order) -> Value:
    """A tensor in an order, with the dimensions of size 1 that it broadcasts over."""
    rank = len(order)
    if len(value.shape) == rank:
        return low.get(value, order)
    held = low.get(value)
    raised = low.reshaped(held, [1] * (rank - len(held.bound)) + list(held.bound)) if not held.constant else None
    if raised is None:
        assert held.data is not None
        return low.tensor(held.data.reshape((1,) * (rank - held.data.ndim) + held.data.shape).transpose(order))
    return low.transposed(raised, order)


def _shape(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def sums(kind: str, first: str = "self", second: str = "other") -> Lower:
    """``add``, ``sub``, ``maximum``, ``minimum``: operands in one unit, as large as it can be without overflow.

    One operand is multiplied by exactly a power of two and the other by less: the form that the NPU does in one go.
    """

    def lower(low: TosaLowering, op: Op) -> None:
        a, b, out = op.args[first], op.args[second], result(op)
        order = common_order(low, op, len(out.shape))
        held = [operand(low, v, order) for v in (a, b)]
        shape = _shape(out, order)
        if out.q is None:
            low.finish(op, order, low.node(kind, shape, FLOAT32, a=held[0], b=held[1]))
            return
        room = 20 if out.q.dtype.itemsize == 1 else 15
        unit = 2 * max(scale_of(a), scale_of(b)) / 2.0**room
        factors = [scale_of(a) / unit, scale_of(b) / unit]
        if factors[0] == factors[1]:
            factors[1] *= 1 - 2.0**-30  # rounds to the same integers, and keeps the form
        wide = [low.rescale(h, INT32, f, zero_of(v)) for h, f, v in zip(held, factors, (a, b), strict=True)]
        low.finish(op, order, low.node(kind, shape, INT32, a=wide[0], b=wide[1]), unit)

    return lower


def product(low: TosaLowering, op: Op) -> None:
    a, b, out = op.args["self"], op.args["other"], result(op)
    order = common_order(low, op, len(out.shape))
    held = [operand(low, v, order) for v in (a, b)]
    if out.q is None:
        low.finish(op, order, low.node("mul", _shape(out, order), FLOAT32, a=held[0], b=held[1], shift=0))
        return
    wide = [low.rescale(h, INT32, 1.0, zero_of(v)) for h, v in zip(held, (a, b), strict=True)]
    acc = low.node("mul", _shape(out, order), INT32, a=wide[0], b=wide[1], shift=0)
    low.finish(op, order, acc, scale_of(a) * scale_of(b))


def limited(low: TosaLowering, op: Op) -> None:
    """An activation that only keeps values in a range: a change of scale, at most."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    held = low.get(x, order)
    from edgewright.passes.quantization import activation_limits

    limits = activation_limits(op.kind, op)
    if x.q == out.q and x.q is not None:
        from edgewright.backends.ethos_u.lower import stored_limits

        low.alias(out, order, low.clamped(held, *stored_limits(out, limits)))
    elif out.q is None:
        low.alias(out, order, low.clamped(held, *limits))  # type: ignore[misc]
    else:
        wide = low.rescale(held, INT32, 1.0, zero_of(x))
        low.alias(out, order, low.narrow(wide, out, scale_of(x), limits))


# ---------------------------------------------------------------------------------------------------------- tables


def real(stored: Array, q: QParams) -> Array:
    return ((stored - np.asarray(q.zero_point)) * np.asarray(q.scale)).astype(np.float32)


def quantized(values: Array, q: QParams) -> Array:
    """Real numbers as stored integers; what is not a number becomes zero, and infinities the ends."""
    finite = np.nan_to_num(np.asarray(values, np.float64) / np.asarray(q.scale), posinf=2**31, neginf=-(2**31))
    return np.clip(np.round(finite) + np.asarray(q.zero_point), q.qmin, q.qmax).astype(q.dtype)


def through_table(
    low: TosaLowering, x: Value, function: Callable[[Array], Array], source: QParams, to: QParams
) -> Value:
    """``function`` of a stored tensor: 256 entries for 8 bits, 513 to interpolate between for 16."""
    with np.errstate(all="ignore"):
        if source.dtype.itemsize == 1:
            entries = quantized(function(real(np.arange(-128, 128), source)), to)
            return low.node("table", x.bound, entries.dtype, input=x, table=low.tensor(entries))
        knots = quantized(function(real(np.arange(-32768, 32769, 128), source)), to)
    wide = low.node("table", x.bound, INT32, input=x, table=low.tensor(knots, INT16))
    return low.rescale(wide, INT16, 1 / 128)


def function_of(op: Op) -> Callable[[Array], Array]:
    """What the op table says an operator of one tensor means, with its other arguments."""
    first = next(iter(op.args))
    rest = {k: v for k, v in op.args.items() if k not in (first, "limits")}
    known: Any = OPS[op.kind]
    return lambda values: np.asarray(known.call({first: values, **rest})[0])


def unary(float_node: str = "") -> Lower:
    """A function of one tensor. ``float_node``: TOSA's own operator for it in floating point."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args[next(iter(op.args))], result(op)
        order = common_order(low, op, len(out.shape))
        held = low.get(x, order)
        if out.q is None or x.q is None:
            low.alias(out, order, low.node(float_node, held.bound, FLOAT32, input=held))
            return
        low.alias(out, order, through_table(low, held, function_of(op), x.q, out.q))

    return lower
