"""Lowering of elementwise arithmetic, activations and unary functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.nxp.lower import RELU_KINDS, NeutronLowering, output, same_qparams, zero_point
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order, common_order, order_with_last
from edgewright.lowering.passes.value_storage import activation_limits

Lower = Callable[[NeutronLowering, Op], None]


def dequantized(value: Any) -> Array:
    """The real values of a scalar or a constant tensor."""
    if not isinstance(value, Value):
        return np.asarray(value, np.float64)
    assert value.data is not None
    data = np.asarray(value.data, np.float64)
    return data if value.q is None else (data - np.asarray(value.q.zero_point)) * np.asarray(value.q.scale)


def operand(low: NeutronLowering, value: Any, order: Order) -> Value:
    """A tensor or scalar in dimension order ``order``, with leading dimensions of size 1 for broadcasting."""
    rank = len(order)
    if not isinstance(value, Value) or (value.constant and value.q is None):
        data = dequantized(value)
        return low.quantize_constant(data.reshape((1,) * (rank - data.ndim) + data.shape).transpose(order))
    if len(value.shape) == rank:
        return low.get(value, order)
    x = low.get(value)
    shape = [1] * (rank - len(x.bound)) + list(x.bound)
    if x.data is None:
        return low.transpose(low.reshape(x, shape), order)
    assert x.q is not None
    return low.quantized_constant(x.data.reshape(shape).transpose(order), x.q)


def _shape_in_order(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def binary(kind: str) -> Lower:
    def lower(low: NeutronLowering, op: Op) -> None:
        out = output(op)
        order = common_order(low, op, len(out.shape))
        pair = [op.args["self"], op.args["other"]]
        operands = [operand(low, v, order) for v in (pair[::-1] if op.kind == "rsub" else pair)]
        low.finish(op, order, low.node(kind, _shape_in_order(out, order), out.q, operands))

    return lower


def div(low: NeutronLowering, op: Op) -> None:
    """Division by a constant: multiplication by its reciprocal."""
    out = output(op)
    order = common_order(low, op, len(out.shape))
    operands = [operand(low, op.args["self"], order), operand(low, 1 / dequantized(op.args["other"]), order)]
    low.finish(op, order, low.node("MUL", _shape_in_order(out, order), out.q, operands))


def unary(kind: str, **options: str) -> Lower:
    """``options`` maps fields of the TFLite options to the operator's arguments."""

    def lower(low: NeutronLowering, op: Op) -> None:
        x, out = op.args["self"], output(op)
        order = common_order(low, op, len(out.shape))
        fields = {field: op.args[name] for field, name in options.items()}
        low.finish(op, order, low.node(kind, _shape_in_order(out, order), out.q, [low.get(x, order)], **fields))

    return lower


def neg(low: NeutronLowering, op: Op) -> None:
    """``0 - x``, with the zero quantized like ``x``."""
    x, out = op.args["self"], output(op)
    order = common_order(low, op, len(out.shape))
    assert x.q is not None
    zero = low.quantized_constant(np.full([1] * len(order), zero_point(x)), x.q)
    low.finish(op, order, low.node("SUB", _shape_in_order(out, order), out.q, [zero, low.get(x, order)]))


def requantize(low: NeutronLowering, op: Op) -> None:
    """Change quantization parameters by adding zero. TFLite results use the full int8 range; an operand of a matrix
    product that is limited to -127 needs a separate clamp."""
    x, out = op.args["self"], output(op)
    order = common_order(low, op, len(out.shape))
    assert x.q is not None and out.q is not None
    full_range = replace(out.q, qmin=-128, qmax=127)
    zero = low.quantized_constant(np.full([1] * len(order), zero_point(x)), x.q)
    result = low.node("ADD", _shape_in_order(out, order), full_range, [low.get(x, order), zero])
    for kind, limit, extreme in (("MAXIMUM", out.q.qmin, full_range.qmin), ("MINIMUM", out.q.qmax, full_range.qmax)):
        if limit != extreme:
            result = low.node(
                kind,
                _shape_in_order(out, order),
                full_range,
                [result, low.quantized_constant(np.full([1] * len(order), limit), full_range)],
            )
    low.finish(op, order, result)


def clamp(low: NeutronLowering, op: Op) -> None:
    """``relu``, ``relu6``, ``hardtanh`` and ``clamp``: a TFLite activation, or MINIMUM and MAXIMUM."""
    x, out, limits = op.args["self"], output(op), activation_limits(op.kind, op)
    assert limits is not None
    order = common_order(low, op, len(out.shape))
    x_value = low.get(x, order)
    if same_qparams(x, out):
        low.alias(out, order, low.clamp(x_value, limits))
    else:
        low.alias(out, order, low.node(RELU_KINDS[limits], _shape_in_order(out, order), out.q, [x_value]))


def prelu(low: NeutronLowering, op: Op) -> None:
    """One slope per channel (dimension 1)."""
    x, out = op.args["self"], output(op)
    rank = len(x.shape)
    order = order_with_last(1, rank) if rank > 1 else (0,)
    slopes = low.quantize_constant(dequantized(op.args["weight"]).reshape([1] * max(rank - 2, 0) + [-1]))
    low.finish(op, order, low.node("PRELU", _shape_in_order(out, order), out.q, [low.get(x, order), slopes]))


def softmax(low: NeutronLowering, op: Op) -> None:
    x, out = op.args["self"], output(op)
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.finish(op, order, low.node("SOFTMAX", _shape_in_order(out, order), out.q, [low.get(x, order)], beta=1.0))
