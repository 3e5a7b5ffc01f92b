"""Lowering of binary arithmetic. With a scalar operand, or with one tensor twice, it is a function of one tensor: a
table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u import fixed_point
from edgewright.backends.ethos_u.lookup_table import Lower, apply_table, dequantize, is_scalar_constant, unary
from edgewright.backends.ethos_u.lower import FLOAT32, INT32, TosaLowering, quantized_limits, result, scale_of, zero_of
from edgewright.backends.table import OK, Rule
from edgewright.ir.aten.reference.activations import sigmoid
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import Order, common_order
from edgewright.lowering.passes.value_storage import activation_limits


def operand(low: TosaLowering, value: Value, order: Order) -> Value:
    """A tensor in a dimension order, with leading ones for broadcasting."""
    rank = len(order)
    if len(value.shape) == rank:
        return low.get(value, order)
    tensor = low.get(value)
    expanded = (
        low.reshape(tensor, [1] * (rank - len(tensor.bound)) + list(tensor.bound)) if not tensor.constant else None
    )
    if expanded is None:
        assert tensor.data is not None
        return low.const(tensor.data.reshape((1,) * (rank - tensor.data.ndim) + tensor.data.shape).transpose(order))
    return low.transpose(expanded, order)


def _shape(out: Value, order: Order) -> list[int]:
    return [out.bound[d] for d in order]


def _tensors(op: Op) -> list[Value]:
    return [v for v in op.args.values() if isinstance(v, Value) and not is_scalar_constant(v)]


def with_scalar_table(lower: Lower) -> Lower:
    """``lower`` for two tensors; a table if one operand is a scalar, or both are the same 8-bit tensor: where that is
    the result of a reshape, Vela computes it twice, once to wrong addresses."""
    table = unary()

    def choose(low: TosaLowering, op: Op) -> None:
        first, *others = _tensors(op)
        is_table = not others or (
            all(v is first for v in others) and first.q is not None and first.q.dtype.itemsize == 1
        )
        (table if is_table else lower)(low, op)

    return choose


def _operands(low: TosaLowering, op: Op, a: Value, b: Value) -> tuple[Order, list[Value]]:
    order = common_order(low, op, len(result(op).shape))
    return order, [operand(low, v, order) for v in (a, b)]


def add_or_compare(kind: str) -> Lower:
    """``add``, ``sub``, ``maximum``, ``minimum``: operands rescaled to one unit, as fine as int32 allows.

    One operand is scaled by exactly a power of two and the other by less: the pattern that Vela fuses into one
    operation.
    """

    def lower(low: TosaLowering, op: Op) -> None:
        a, b, out = op.args["self"], op.args["other"], result(op)
        alpha = float(op.args.get("alpha", 1))
        if op.kind == "rsub":
            a, b = b, a
        order, operands = _operands(low, op, a, b)
        node_kind, shape = _with_sign(kind, alpha), _shape(out, order)
        if out.q is None:
            low.finish(op, order, low.node(node_kind, shape, FLOAT32, a=operands[0], b=operands[1]))
            return
        # Alpha scales the second operand of add and sub, and ``self`` of rsub: both are ``b`` here.
        scales = [scale_of(a), scale_of(b) * abs(alpha)]
        wide, unit = common_unit(low, operands, scales, (a, b))
        low.finish(op, order, low.node(node_kind, shape, INT32, a=wide[0], b=wide[1]), unit)

    return with_scalar_table(lower)


def _with_sign(kind: str, alpha: float) -> str:
    return kind if alpha > 0 else {"add": "sub", "sub": "add"}[kind]


def common_unit(
    low: TosaLowering, operands: list[Value], scales: list[float], values: Any
) -> tuple[list[Value], float]:
    """Quantized tensors as int32 in one unit, and the unit."""
    bits = 20 if operands[0].dtype is not None and operands[0].dtype.itemsize == 1 else 15
    unit = 2 * max(scales) / 2.0**bits
    factors = [s / unit for s in scales]
    for i in range(1, len(factors)):
        if factors[i] in factors[:i] and operands[i] is not operands[0]:
            factors[i] *= 1 - 2.0**-30  # rounds to the same integers, and keeps the fused pattern
    return _rescale_each(low, operands, factors, values), unit


def _rescale_each(
    low: TosaLowering, operands: Sequence[Value], factors: Sequence[float], values: Sequence[Value]
) -> list[Value]:
    """Quantized tensors as int32 without zero points; one RESCALE for one tensor (``with_scalar_table`` says why)."""
    wide: dict[tuple[int, float], Value] = {}
    for tensor, factor, value in zip(operands, factors, values, strict=True):
        key = id(tensor), factor
        if key not in wide:
            wide[key] = low.rescale(tensor, INT32, factor, zero_of(value))
    return [wide[id(tensor), factor] for tensor, factor in zip(operands, factors, strict=True)]


def _multiply(low: TosaLowering, op: Op) -> None:
    a, b, out = op.args["self"], op.args["other"], result(op)
    order, operands = _operands(low, op, a, b)
    if out.q is None:
        low.finish(op, order, low.node("mul", _shape(out, order), FLOAT32, a=operands[0], b=operands[1], shift=0))
        return
    wide = _rescale_each(low, operands, [1.0, 1.0], (a, b))
    acc = low.node("mul", _shape(out, order), INT32, a=wide[0], b=wide[1], shift=0)
    low.finish(op, order, acc, scale_of(a) * scale_of(b))


multiply = with_scalar_table(_multiply)


def clamp(low: TosaLowering, op: Op) -> None:
    """Clamping activations: at most a change of scale."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(out.shape))
    tensor = low.get(x, order)
    limits = activation_limits(op.kind, op)
    if limits is None:
        _clamp_by_tensors(low, op)
    elif out.q is None:
        low.alias(out, order, low.clamp(tensor, *limits))
    elif x.q == out.q:
        low.alias(out, order, low.clamp(tensor, *quantized_limits(out, limits)))
    else:
        wide = low.rescale(tensor, INT32, 1.0, zero_of(x))
        low.alias(out, order, low.requantize(wide, out, scale_of(x), limits))


def _clamp_by_tensors(low: TosaLowering, op: Op) -> None:
    """``clamp`` with tensor bounds: first the lower, then the upper."""
    names = [n for n in ("self", "min", "max") if isinstance(op.args.get(n), Value)]
    values, out = [op.args[n] for n in names], result(op)
    order = common_order(low, op, len(out.shape))
    operands = [operand(low, v, order) for v in values]
    wide, unit = common_unit(low, operands, [scale_of(v) for v in values], values)
    acc = wide[0]
    for name, bound in zip(names[1:], wide[1:], strict=True):
        acc = fixed_point.binary(low, "maximum" if name == "min" else "minimum", acc, bound)
    low.finish(op, order, acc, unit)


def prelu(low: TosaLowering, op: Op) -> None:
    """The positive part, plus the negative part times the slope of its channel."""
    x, weight, out = op.args["self"], op.args["weight"], result(op)
    slopes = np.asarray(weight.data, np.float64) if weight.q is None else dequantize(weight.data, weight.q)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    if slopes.size == 1:
        assert x.q is not None and out.q is not None
        slope = float(slopes.reshape(()))
        leaky = lambda v: np.where(v > 0, v, v * slope)  # noqa: E731
        low.alias(out, order, apply_table(low, low.get(x, order), leaky, x.q, out.q, "prelu", slope))
        return
    wide = low.rescale(low.get(x, order), INT32, 1.0, zero_of(x))
    unit = max(float(np.abs(slopes).max()), 1.0) / 2.0**14
    shape = [1] * rank
    shape[min(1, rank - 1)] = slopes.size
    fixed_slopes = np.round(slopes / unit).reshape(shape).transpose(order)
    below = fixed_point.mul(low, fixed_point.binary(low, "minimum", wide, 0), low.const(fixed_slopes, np.int32))
    above = low.rescale(fixed_point.binary(low, "maximum", wide, 0), INT32, 1 / unit)
    low.finish(op, order, fixed_point.binary(low, "add", above, below), scale_of(x) * unit)


def glu(low: TosaLowering, op: Op) -> None:
    """First half times the sigmoid of the second half, to 15 bits."""
    x = op.args["self"]
    rank = len(x.shape)
    order = common_order(low, op, rank)
    tensor = low.get(x, order)
    axis = order.index(op.args["dim"] % rank)
    size = [n // 2 if a == axis else n for a, n in enumerate(tensor.bound)]
    first, gate = (low.slice(tensor, [at if a == axis else 0 for a in range(rank)], size) for at in (0, size[axis]))
    if x.q.dtype.itemsize == 1:
        sigmoid_gate = fixed_point.exact_table(low, gate, sigmoid(dequantize(np.arange(-128, 128), x.q)) * 2**15)
    else:
        to = type(x.q)(2.0**-15, 0, x.q.dtype, -32768, 32767)
        sigmoid_gate = low.rescale(apply_table(low, gate, sigmoid, x.q, to, "sigmoid"), INT32, 1.0)
    value = low.rescale(first, INT32, 1.0, zero_of(x))
    low.finish(op, order, fixed_point.mul(low, value, sigmoid_gate), scale_of(x) * 2.0**-15)


# ----------------------------------------------------------------------------------------------------------- rules


def _check_bounds(op: Op, target: Any) -> object:
    limits = activation_limits(op.kind, op)
    return OK if limits is None or limits[0] <= limits[1] else f"{limits[0]} and {limits[1]}"


ordered_bounds = Rule("the lower bound must not be above the upper", _check_bounds)


def _check_alpha(op: Op, target: Any) -> object:
    return 0 if op.args.get("alpha", 1) == 0 else OK


nonzero_alpha = Rule("alpha must not be zero", _check_alpha)


def _check_one_tensor(op: Op, target: Any) -> object:
    tensors = [n for n, v in op.args.items() if isinstance(v, Value) and not is_scalar_constant(v)]
    return OK if len(tensors) == 1 else " and ".join(tensors)


one_tensor = Rule("one operand must be a scalar", _check_one_tensor)
