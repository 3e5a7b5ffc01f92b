"""Lowering of arithmetic, activations and functions of one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.nxp.lower import LIMITED, NeutronLowering, alike, result, zero_of
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order, common_order, order_with_last
from edgewright.lowering.passes.value_storage import activation_limits

Lower = Callable[[NeutronLowering, Op], None]


def real_of(given: Any) -> Array:
    """A number or a constant tensor, as real numbers."""
    if not isinstance(given, Value):
        return np.asarray(given, np.float64)
    assert given.data is not None
    data = np.asarray(given.data, np.float64)
    return data if given.q is None else (data - np.asarray(given.q.zero_point)) * np.asarray(given.q.scale)


def operand(low: NeutronLowering, given: Any, order: Order) -> Value:
    """A tensor (or a number) in an order, with the dimensions of size 1 that it broadcasts over."""
    rank = len(order)
    if not isinstance(given, Value) or (given.constant and given.q is None):
        data = real_of(given)
        return low.real(data.reshape((1,) * (rank - data.ndim) + data.shape).transpose(order))
    if len(given.shape) == rank:
        return low.get(given, order)
    held = low.get(given)
    shape = [1] * (rank - len(held.bound)) + list(held.bound)
    if held.data is None:
        return low.transposed(low.reshaped(held, shape), order)
    assert held.q is not None
    return low.stored(held.data.reshape(shape).transpose(order), held.q)


def _shape(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def binary(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        out = result(op)
        order = common_order(low, op, len(out.shape))
        pair = [op.args["self"], op.args["other"]]
        held = [operand(low, v, order) for v in (pair[::-1] if op.kind == "rsub" else pair)]
        low.finish(op, order, low.node(kind, _shape(out, order), out.q, held))

    return lower


def divided(low: NeutronLowering, op: Op) -> None:
    """By a constant: times its reciprocal."""
    out = result(op)
    order = common_order(low, op, len(out.shape))
    held = [operand(low, op.args["self"], order), operand(low, 1 / real_of(op.args["other"]), order)]
    low.finish(op, order, low.node("MUL", _shape(out, order), out.q, held))


def unary(kind: str, **options: str) -> Lower:
    """``options``: fields of the operator's options, and the arguments they come from."""

    def lower(low: NeutronLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        order = common_order(low, op, len(out.shape))
        given = {field: op.args[name] for field, name in options.items()}
        low.finish(op, order, low.node(kind, _shape(out, order), out.q, [low.get(x, order)], **given))

    return lower


def negated(low: NeutronLowering, op: Op) -> None:
    """Zero minus ``x``, with the zero stored as ``x`` is."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    assert x.q is not None
    nothing = low.stored(np.full([1] * len(order), zero_of(x)), x.q)
    low.finish(op, order, low.node("SUB", _shape(out, order), out.q, [nothing, low.get(x, order)]))


def requantized(low: NeutronLowering, op: Op) -> None:
    """The same values in other integers: nothing is added to them. TFLite's integers use all of int8; those of a
    product's right side stop at -127, which takes an operator of its own."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    assert x.q is not None and out.q is not None
    whole = replace(out.q, qmin=-128, qmax=127)
    nothing = low.stored(np.full([1] * len(order), zero_of(x)), x.q)
    held = low.node("ADD", _shape(out, order), whole, [low.get(x, order), nothing])
    for kind, end, widest in (("MAXIMUM", out.q.qmin, whole.qmin), ("MINIMUM", out.q.qmax, whole.qmax)):
        if end != widest:
            held = low.node(kind, _shape(out, order), whole, [held, low.stored(np.full([1] * len(order), end), whole)])
    low.finish(op, order, held)


def limited(low: NeutronLowering, op: Op) -> None:
    """``relu``, ``relu6``, ``hardtanh`` and ``clamp``: an operator of TFLite's, or MINIMUM and MAXIMUM."""
    x, out, limits = op.args["self"], result(op), activation_limits(op.kind, op)
    assert limits is not None
    order = common_order(low, op, len(out.shape))
    held = low.get(x, order)
    if alike(x, out):
        low.alias(out, order, low.limited(held, limits))
    else:
        low.alias(out, order, low.node(LIMITED[limits], _shape(out, order), out.q, [held]))


def prelu(low: NeutronLowering, op: Op) -> None:
    """Slopes of the channels, which are dimension 1."""
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order = order_with_last(1, rank) if rank > 1 else (0,)
    slopes = low.real(real_of(op.args["weight"]).reshape([1] * max(rank - 2, 0) + [-1]))
    low.finish(op, order, low.node("PRELU", _shape(out, order), out.q, [low.get(x, order), slopes]))


def softmax(low: NeutronLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.finish(op, order, low.node("SOFTMAX", _shape(out, order), out.q, [low.get(x, order)], beta=1.0))
