"""Lowering of arithmetic on two tensors. With a number for one of them, it is a function of the other: a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import Lower, real, single, through_table, unary
from edgewright.backends.ethos_u.lower import FLOAT32, INT32, TosaLowering, result, scale_of, stored_limits, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.aten.reference.activations import sigmoid
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order
from edgewright.lowering.passes.value_storage import activation_limits


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


def _tensors(op: Op) -> list[Value]:
    return [v for v in op.args.values() if isinstance(v, Value) and not single(v)]


def with_numbers(lower: Lower) -> Lower:
    """``lower`` for two tensors; a table where one of them is a number."""
    table = unary()

    def either(low: TosaLowering, op: Op) -> None:
        (table if len(_tensors(op)) == 1 else lower)(low, op)

    return either


def _pair(low: TosaLowering, op: Op, a: Value, b: Value) -> tuple[Order, list[Value]]:
    order = common_order(low, op, len(result(op).shape))
    return order, [operand(low, v, order) for v in (a, b)]


def sums(kind: str) -> Lower:
    """``add``, ``sub``, ``maximum``, ``minimum``: operands in one unit, as large as it can be without overflow.

    One operand is multiplied by exactly a power of two and the other by less: the form that the NPU does in one go.
    """

    def lower(low: TosaLowering, op: Op) -> None:
        a, b, out = op.args["self"], op.args["other"], result(op)
        alpha = float(op.args.get("alpha", 1))
        if op.kind == "rsub":
            a, b = b, a
        order, held = _pair(low, op, a, b)
        made, shape = _signed(kind, alpha), _shape(out, order)
        if out.q is None:
            low.finish(op, order, low.node(made, shape, FLOAT32, a=held[0], b=held[1]))
            return
        # Alpha belongs to the second operand of add and sub, to the tensor itself of rsub: always the one taken off.
        scales = [scale_of(a), scale_of(b) * abs(alpha)]
        wide, unit = one_unit(low, held, scales, (a, b))
        low.finish(op, order, low.node(made, shape, INT32, a=wide[0], b=wide[1]), unit)

    return with_numbers(lower)


def _signed(kind: str, alpha: float) -> str:
    return kind if alpha > 0 else {"add": "sub", "sub": "add"}[kind]


def one_unit(low: TosaLowering, held: list[Value], scales: list[float], of: Any) -> tuple[list[Value], float]:
    """Stored tensors as 32-bit integers in one unit, and that."""
    room = 20 if held[0].dtype is not None and held[0].dtype.itemsize == 1 else 15
    unit = 2 * max(scales) / 2.0**room
    factors = [s / unit for s in scales]
    for later in range(1, len(factors)):
        if factors[later] in factors[:later]:
            factors[later] *= 1 - 2.0**-30  # rounds to the same integers, and keeps the form
    wide = [low.rescale(h, INT32, f, zero_of(v)) for h, f, v in zip(held, factors, of, strict=True)]
    return wide, unit


def _product(low: TosaLowering, op: Op) -> None:
    a, b, out = op.args["self"], op.args["other"], result(op)
    order, held = _pair(low, op, a, b)
    if out.q is None:
        low.finish(op, order, low.node("mul", _shape(out, order), FLOAT32, a=held[0], b=held[1], shift=0))
        return
    wide = [low.rescale(h, INT32, 1.0, zero_of(v)) for h, v in zip(held, (a, b), strict=True)]
    acc = low.node("mul", _shape(out, order), INT32, a=wide[0], b=wide[1], shift=0)
    low.finish(op, order, acc, scale_of(a) * scale_of(b))


product = with_numbers(_product)


def limited(low: TosaLowering, op: Op) -> None:
    """An activation that only keeps values in a range: a change of scale, at most."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    held = low.get(x, order)
    limits = activation_limits(op.kind, op)
    if limits is None:
        _bounded(low, op)
    elif out.q is None:
        low.alias(out, order, low.clamped(held, *limits))
    elif x.q == out.q:
        low.alias(out, order, low.clamped(held, *stored_limits(out, limits)))
    else:
        wide = low.rescale(held, INT32, 1.0, zero_of(x))
        low.alias(out, order, low.narrow(wide, out, scale_of(x), limits))


def _bounded(low: TosaLowering, op: Op) -> None:
    """``clamp`` with tensors as bounds: first the lower, then the upper."""
    names = [n for n in ("self", "min", "max") if isinstance(op.args.get(n), Value)]
    values, out = [op.args[n] for n in names], result(op)
    order = common_order(low, op, len(out.shape))
    held = [operand(low, v, order) for v in values]
    wide, unit = one_unit(low, held, [scale_of(v) for v in values], values)
    acc = wide[0]
    for name, bound in zip(names[1:], wide[1:], strict=True):
        acc = fixed_point.both(low, "maximum" if name == "min" else "minimum", acc, bound)
    low.finish(op, order, acc, unit)


def prelu(low: TosaLowering, op: Op) -> None:
    """What is above zero, and what is below times its channel's slope."""
    x, weight, out = op.args["self"], op.args["weight"], result(op)
    slopes = np.asarray(weight.data, np.float64) if weight.q is None else real(weight.data, weight.q)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    if slopes.size == 1:
        assert x.q is not None and out.q is not None
        slope = float(slopes.reshape(()))
        bent = lambda v: np.where(v > 0, v, v * slope)  # noqa: E731
        low.alias(out, order, through_table(low, low.get(x, order), bent, x.q, out.q, "prelu", slope))
        return
    wide = low.rescale(low.get(x, order), INT32, 1.0, zero_of(x))
    unit = max(float(np.abs(slopes).max()), 1.0) / 2.0**14
    shape = [1] * rank
    shape[min(1, rank - 1)] = slopes.size
    stored = np.round(slopes / unit).reshape(shape).transpose(order)
    below = fixed_point.mul(low, fixed_point.both(low, "minimum", wide, 0), low.tensor(stored, np.int32))
    above = low.rescale(fixed_point.both(low, "maximum", wide, 0), INT32, 1 / unit)
    low.finish(op, order, fixed_point.both(low, "add", above, below), scale_of(x) * unit)


def glu(low: TosaLowering, op: Op) -> None:
    """One half of a tensor, times the sigmoid of the other to 15 bits."""
    x = op.args["self"]
    rank = len(x.shape)
    order = common_order(low, op, rank)
    held = low.get(x, order)
    axis = order.index(op.args["dim"] % rank)
    size = [n // 2 if a == axis else n for a, n in enumerate(held.bound)]
    first, gate = (low.sliced(held, [at if a == axis else 0 for a in range(rank)], size) for at in (0, size[axis]))
    if x.q.dtype.itemsize == 1:
        share = fixed_point.fine(low, gate, sigmoid(real(np.arange(-128, 128), x.q)) * 2**15)
    else:
        to = type(x.q)(2.0**-15, 0, x.q.dtype, -32768, 32767)
        share = low.rescale(through_table(low, gate, sigmoid, x.q, to, "sigmoid"), INT32, 1.0)
    value = low.rescale(first, INT32, 1.0, zero_of(x))
    low.finish(op, order, fixed_point.mul(low, value, share), scale_of(x) * 2.0**-15)


# ----------------------------------------------------------------------------------------------------------- rules


def _crossed(op: Op, target: Any) -> object:
    limits = activation_limits(op.kind, op)
    return OK if limits is None or limits[0] <= limits[1] else f"{limits[0]} and {limits[1]}"


in_turn = Rule("the lower bound must not be above the upper", _crossed)


def _no_alpha(op: Op, target: Any) -> object:
    return 0 if op.args.get("alpha", 1) == 0 else OK


some_alpha = Rule("alpha must not be zero", _no_alpha)


def _two(op: Op, target: Any) -> object:
    computed = [n for n, v in op.args.items() if isinstance(v, Value) and not single(v)]
    return OK if len(computed) == 1 else " and ".join(computed)


one_tensor = Rule("one operand must be a number", _two)
