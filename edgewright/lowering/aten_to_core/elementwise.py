"""Lowering of elementwise operators, in the layout of their operands.

Operands are cast to the type of PyTorch's type promotion first; the result is cast to that of its tensor. Quantized
operands keep their types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.reference.elementwise import cast
from edgewright.ir.core.dialect import CORE
from edgewright.ir.dtypes import DType, is_integral
from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.operands import (
    BOOL,
    F32,
    FLOATS,
    cast_value,
    common_type,
    dtype_of,
    emit_result,
    limits,
    operand,
    result,
)
from edgewright.lowering.passes.layout import LoweringContext, common_order, order_with_last, require
from edgewright.lowering.passes.value_storage import activation_limits

Lowering = Callable[[LoweringContext, Op], None]


def _is_quantized(op: Op) -> bool:
    return any(v.q is not None for v in op.inputs())


# ------------------------------------------------------------------------------------------------------ two operands


def arithmetic(kind: str, first: str = "self", second: str = "other") -> Lowering:
    """``add``, ``sub`` and ``mul``: ``first (op) alpha * second``."""

    def lower(low: LoweringContext, op: Op) -> None:
        out, alpha = result(op), op.args.get("alpha", 1)
        order = common_order(low, op, len(out.shape))
        dtype = None if _is_quantized(op) else common_type(op.args[first], op.args[second])
        require(not (is_integral(dtype) and isinstance(alpha, float)) if dtype else True, "alpha must be an integer")
        require(kind != "core.sub" or dtype != BOOL, "bool has no subtraction")
        a, b = (_arithmetic_operand(low, op, name, order, dtype) for name in (first, second))
        if alpha != 1:
            factor = low.constant(np.asarray(cast(alpha, dtype_of(b))))
            b = _scaled(low, b, factor)
        emit_result(low, kind, out, dtype, order, self=a, other=b, **limits(op))

    return lower


def _arithmetic_operand(low: LoweringContext, op: Op, name: str, order: Any, dtype: DType | None) -> Value:
    number = not isinstance(op.args[name], Value)
    return operand(low, op, name, order, low.scalar_dtype(dtype) if number and dtype is not None else dtype)


def _scaled(low: LoweringContext, value: Value, factor: Value) -> Value:
    if value.data is not None:
        return low.constant(np.asarray(value.data * factor.data))
    return low.compute("core.mul", value.bound, value.dtype, self=value, other=factor)


def binary(
    kind: str, second: str = "other", *, compute: DType | None = None, out: DType | None = None, integral: bool = False,
    booleans: bool = True, divides: bool = False,
) -> Lowering:  # fmt: skip
    """An operator of two operands, computed in ``compute`` or in their common type, which must be ``integral`` or must
    not be bool. ``out``: the type of its result, if it is another. ``divides``: integers need a nonzero divisor."""

    def lower(low: LoweringContext, op: Op) -> None:
        order = common_order(low, op, len(result(op).shape))
        dtype = None if _is_quantized(op) else compute or common_type(op.args["self"], op.args[second])
        require(dtype is None or not integral or is_integral(dtype), "must be integers")
        require(booleans or dtype != BOOL, "must not be bool")
        if divides and dtype is not None and is_integral(dtype):
            low.require_nonzero(op.args[second])
        a, b = (operand(low, op, name, order, dtype) for name in ("self", second))
        emit_result(low, kind, result(op), out or dtype, order, **{"self": a, second: b}, **limits(op))

    return lower


_DIVISIONS = {None: "core.div", "floor": "core.floor_divide", "trunc": "core.trunc_divide"}


def divide(low: LoweringContext, op: Op) -> None:
    """True division of integers is computed in float32."""
    mode = "floor" if op.kind == "floor_divide" else op.args.get("rounding_mode")
    require(mode in _DIVISIONS, "must be a known rounding mode")
    dtype = common_type(op.args["self"], op.args["other"])
    if mode is not None:
        binary(_DIVISIONS[mode], booleans=False, divides=True)(low, op)
        return
    dtype = F32 if is_integral(dtype) else dtype
    order = common_order(low, op, len(result(op).shape))
    a, b = (_arithmetic_operand(low, op, name, order, dtype) for name in ("self", "other"))
    emit_result(low, "core.div", result(op), dtype, order, self=a, other=b, **limits(op))


def power(low: LoweringContext, op: Op) -> None:
    x, y = op.args["self"], op.args["exponent"]
    if isinstance(x, Value) and x.dtype in FLOATS and not isinstance(y, Value) and y == 2:
        unary("core.square")(low, op)
        return
    dtype = common_type(x, y)
    if is_integral(dtype) and not isinstance(y, Value):
        require(0 <= y == int(cast(y, dtype)), "the exponent must be a natural number")
    binary("core.pow", "exponent", booleans=False)(low, op)


# ------------------------------------------------------------------------------------------------------- one operand


def unary(
    kind: str, attributes: Mapping[str, str] | None = None, *, compute: DType | None = None, floating: bool = False,
    integral: bool = False, booleans: bool = True, out: DType | None = None,
) -> Lowering:  # fmt: skip
    """An operator of one operand. ``floating``: integers are converted to float32 first. ``compute``, ``integral``,
    ``booleans``, ``out``: as in ``binary``. ``attributes`` maps those of the core operator to arguments."""

    def lower(low: LoweringContext, op: Op) -> None:
        source = next(op.inputs())
        order = common_order(low, op, len(result(op).shape))
        dtype = compute or dtype_of(source)
        dtype = F32 if floating and is_integral(dtype) and source.q is None else dtype
        require(not integral or is_integral(dtype), "must be integers")
        require(booleans or dtype != BOOL, "must not be bool")
        x = low.get(source, order)
        x = x if source.q is not None else cast_value(low, x, dtype)
        arguments = {name: op.args[argument] for name, argument in (attributes or {}).items()}
        computed = None if source.q is not None else out or dtype
        emit_result(low, kind, result(op), computed, order, self=x, **arguments, **limits(op))

    return lower


def sign(low: LoweringContext, op: Op) -> None:
    """A bool is its own sign."""
    unary("core.clone" if op.args["self"].dtype == BOOL else "core.sign")(low, op)


def prelu(low: LoweringContext, op: Op) -> None:
    """One slope per channel, channels last."""
    x, slopes, out = op.args["self"], op.args["weight"], result(op)
    rank = len(x.shape)
    order = order_with_last(min(1, rank - 1), rank)
    channels = int(x.bound[order[-1]])
    weight = low.constant(np.ascontiguousarray(np.broadcast_to(slopes.data.reshape(-1), (channels,))))
    low.emit("core.prelu", low.make(out, order), self=low.get(x, order), weight=weight)


# -------------------------------------------------------------------------------------------------- clamp and select


def _clamp_bounds(op: Op) -> tuple[Any, Any]:
    """The bounds of an activation that clamps: numbers, tensors or None."""
    if op.kind == "relu":
        return 0, None
    names = ("min_val", "max_val") if op.kind == "hardtanh" else ("min", "max")
    return op.args.get(names[0]), op.args.get(names[1])


def clamp(low: LoweringContext, op: Op) -> None:
    """One operator for floats and quantized integers with fixed bounds; else ``min(max(x, low), high)``."""
    x, out, bounds = op.args["self"], result(op), _clamp_bounds(op)
    require(any(b is not None for b in bounds), "must have a bound")
    order, fixed = common_order(low, op, len(out.shape)), activation_limits(op.kind, op)
    one_type = x.q is not None or (x.dtype in FLOATS and x.dtype == out.dtype)
    if one_type and fixed is not None and fixed[0] <= fixed[1]:
        low.emit("core.clamp", low.make(out, order), self=low.get(x, order), limits=fixed)
        return
    present = [b for b in bounds if b is not None]
    dtype = common_type(x, *present) if op.kind == "clamp" else x.dtype
    require(op.kind == "clamp" or all(_represents(dtype, b) for b in present), "the type must represent the bounds")
    value = cast_value(low, operand(low, op, "self", order), dtype)
    for kind, bound in zip(("core.maximum", "core.minimum"), bounds, strict=True):
        if bound is not None:
            other = operand(low, Op(op.kind, {"bound": bound}, op.outputs), "bound", order, dtype)
            value = low.compute(kind, np.broadcast_shapes(value.bound, other.bound), dtype, self=value, other=other)
    low.emit("core.clone" if value.dtype == out.dtype else "core.cast", low.make(out, order), self=value)


def _represents(dtype: DType, number: Any) -> bool:
    """Whether an integer type represents a number; any bound is fine for floating point."""
    return not is_integral(dtype) or (number == int(cast(number, dtype)) and number >= 0) or dtype.kind == "i"


def where(low: LoweringContext, op: Op) -> None:
    condition, out = op.args["condition"], result(op)
    require(condition.dtype in (BOOL, np.dtype(np.uint8)), "the condition must be bool")
    order, dtype = common_order(low, op, len(out.shape)), common_type(op.args["self"], op.args["other"])
    a, b = (operand(low, op, name, order, dtype) for name in ("self", "other"))
    emit_result(low, "core.where", out, dtype, order, condition=operand(low, op, "condition", order), self=a, other=b)


def masked_fill(low: LoweringContext, op: Op) -> None:
    x, value, out = op.args["self"], op.args["value"], result(op)
    require(op.args["mask"].dtype == BOOL, "the mask must be bool")
    if is_integral(x.dtype):
        info = np.iinfo(np.uint8 if x.dtype == BOOL else x.dtype)
        require(info.min <= value <= info.max, "the type must represent the value")
    order = common_order(low, op, len(out.shape))
    mask, fill = operand(low, op, "mask", order), operand(low, op, "value", order, x.dtype)
    emit_result(
        low, "core.where", out, x.dtype, order, condition=mask, self=fill, other=operand(low, op, "self", order)
    )


# Functions of one number that core has under ATen's name; those of floating-point numbers alone.
_FUNCTIONS = [op for op, row in OPS.items() if row.is_function and f"core.{op}" in CORE and len(row.arguments) == 1]
FLOAT_FUNCTIONS = frozenset(op for op in _FUNCTIONS if "I" not in CORE.rows[op].types.split())
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
LOWERINGS: dict[str, Lowering] = {
    "add": arithmetic("core.add"), "sub": arithmetic("core.sub"), "mul": arithmetic("core.mul"),
    "rsub": arithmetic("core.sub", "other", "self"),
    **{name: binary(f"core.{name}") for name in ("maximum", "minimum")},
    **{name: binary(f"core.{name}", integral=True) for name in _BITS},
    **{n: binary(f"core.{n}", integral=True, booleans=False) for n in ("bitwise_left_shift", "bitwise_right_shift")},
    **{name: binary(f"core.{name}", out=BOOL) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{n: binary(f"core.{n}", compute=BOOL, out=BOOL) for n in ("logical_and", "logical_or", "logical_xor")},
    **{name: binary(f"core.{name}", booleans=False, divides=True) for name in ("fmod", "remainder")},
    "div": divide, "floor_divide": divide, "atan2": binary("core.atan2", compute=F32), "pow": power,
    **{op: unary(f"core.{op}", floating=op in FLOAT_FUNCTIONS) for op in _FUNCTIONS},
    "neg": unary("core.neg", booleans=False),
    "bitwise_not": unary("core.bitwise_not", integral=True),
    "isnan": unary("core.isnan", out=BOOL), "isinf": unary("core.isinf", out=BOOL),
    "logical_not": unary("core.logical_not", compute=BOOL, out=BOOL), "sign": sign,
    "prelu": prelu, "relu": clamp, "hardtanh": clamp, "clamp": clamp, "where": where, "masked_fill": masked_fill,
}  # fmt: skip
