"""Lowering of elementwise kernels of any dtype.

Operands are cast to the dtype of PyTorch's type promotion first; the result is cast to that of its tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import cast, result_type
from edgewright.ir.dtypes import DType, is_integral
from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import DTYPES, TRANSCENDENTAL_COST, GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, core_kind, lowers, lowers_fallback, op_name
from edgewright.runtime.tensor import TensorSlot

_F32, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


def type_proxy(arg: Any) -> Any:
    """What type promotion reads of an argument: dtype and rank, without contents."""
    return np.broadcast_to(np.zeros((), arg.dtype), arg.bound) if isinstance(arg, TensorSlot) else arg


def common_type(*args: Any) -> DType:
    return result_type(*map(type_proxy, args))


def emit_cast(g: GraphBuilder, arg: Any, dtype: DType) -> Value:
    """A tensor or a number, cast to ``dtype``."""
    if not isinstance(arg, TensorSlot):
        return make_value((), np.asarray(cast(arg, dtype)))
    value = g.value(arg)
    if value.dtype == dtype:
        return value
    if value.data is not None:
        return make_value(value.bound, value.data.astype(dtype, order="C"))
    return g.emit("core.cast", value.bound, {"self": value}, dtype)


def emit_typed(g: GraphBuilder, kind: str, out: TensorSlot, args: dict[str, Any], dtype: DType) -> bool:
    """Emit an operator whose result is of ``dtype``, cast to that of ``out``."""
    if out.dtype == dtype:
        g.emit_to(kind, out, args)
    else:
        g.emit_to("core.cast", out, {"self": g.emit(kind, out.bound, args, dtype)})
    g.macs += math.prod(out.bound)
    return True


def broadcasts_to(operands: Sequence[Any], out: TensorSlot) -> bool:
    """Whether the operands broadcast to the shape of the result."""
    shapes = [x.bound for x in operands if isinstance(x, TensorSlot)]
    try:
        return np.broadcast_shapes(*shapes) == out.bound
    except ValueError:
        return False


def supports_operands(g: GraphBuilder, operands: Sequence[Any], out: TensorSlot) -> bool:
    slots = [x for x in operands if isinstance(x, TensorSlot)]
    return bool(slots) and g.supports(*slots, out) and broadcasts_to(operands, out)


# --------------------------------------------------------------------------------------------------- two operands


@lowers_fallback(
    *(f"aten::{n}.{o}" for n in ("add", "sub", "mul") for o in ("out", "Scalar_out")), "aten::rsub.Scalar_out"
)
def _add_sub_mul(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    name, (x, y), alpha = op_name(a), (a["self"], a["other"]), a.get("alpha", 1)
    if not supports_operands(g, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in DTYPES or (is_integral(dtype) and isinstance(alpha, float)) or (name == "sub" and dtype == _BOOL):
        return False
    left, right = (x, y) if name != "rsub" else (y, x)
    first, second = emit_cast(g, left, dtype), emit_cast(g, right, dtype)
    if alpha != 1 and second.data is not None:
        second = make_value(second.bound, np.asarray(second.data * cast(alpha, dtype)))
    elif alpha != 1:
        scaled = {"self": second, "other": emit_cast(g, alpha, dtype)}
        second = g.emit("core.mul", second.bound, scaled, dtype)
    return emit_typed(
        g, "core.sub" if name == "rsub" else core_kind(a), outs[0], {"self": first, "other": second}, dtype
    )


@lowers_fallback("aten::maximum.out", "aten::minimum.out")
@lowers(*(f"aten::bitwise_{n}.{o}_out" for n in ("and", "or", "xor") for o in ("Tensor", "Scalar")))
@lowers(*(f"aten::bitwise_{n}_shift.{o}_out" for n in ("left", "right") for o in ("Tensor", "Tensor_Scalar")))
def _binary_same_dtype(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y, name = a["self"], a["other"], op_name(a)
    if not supports_operands(g, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in DTYPES or (name.startswith("bitwise") and not is_integral(dtype)):
        return False
    if name.endswith("shift") and dtype == _BOOL:
        return False
    return emit_typed(
        g, core_kind(a), outs[0], {"self": emit_cast(g, x, dtype), "other": emit_cast(g, y, dtype)}, dtype
    )


@lowers(*(f"aten::{n}.{o}_out" for n in ("eq", "ne", "lt", "le", "gt", "ge") for o in ("Tensor", "Scalar")))
def _compare(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not supports_operands(g, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in DTYPES:
        return False
    return emit_typed(
        g, core_kind(a), outs[0], {"self": emit_cast(g, x, dtype), "other": emit_cast(g, y, dtype)}, _BOOL
    )


@lowers("aten::logical_and.out", "aten::logical_or.out", "aten::logical_xor.out")
def _logic(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not supports_operands(g, (x, y), outs[0]):
        return False
    return emit_typed(
        g, core_kind(a), outs[0], {"self": emit_cast(g, x, _BOOL), "other": emit_cast(g, y, _BOOL)}, _BOOL
    )


_DIVISIONS = {None: "core.div", "floor": "core.floor_divide", "trunc": "core.trunc_divide"}


@lowers_fallback("aten::div.out", "aten::div.Scalar_out")
@lowers("aten::div.out_mode", "aten::div.Scalar_mode_out", "aten::floor_divide.out")
@lowers(*(f"aten::{n}.{o}_out" for n in ("fmod", "remainder") for o in ("Tensor", "Scalar")))
def _divide(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Integers only with a divisor that is known or guarded not to be zero; the kernel reports division by zero."""
    x, y, name = a["self"], a["other"], op_name(a)
    mode = "floor" if name == "floor_divide" else a.get("rounding_mode")
    if not supports_operands(g, (x, y), outs[0]) or mode not in _DIVISIONS:
        return False
    kind = core_kind(a) if name in ("fmod", "remainder") else _DIVISIONS[mode]
    dtype = common_type(x, y)
    if kind == "core.div" and is_integral(dtype):
        dtype = _F32
    if dtype not in DTYPES or dtype == _BOOL or (is_integral(dtype) and not ensure_nonzero(g, y)):
        return False
    return emit_typed(g, kind, outs[0], {"self": emit_cast(g, x, dtype), "other": emit_cast(g, y, dtype)}, dtype)


def ensure_nonzero(g: GraphBuilder, divisor: Any) -> bool:
    if not isinstance(divisor, TensorSlot):
        return bool(divisor != 0)
    data = g.constant(divisor)
    if data is not None:
        return bool(np.all(data))
    if g.is_bound(divisor) and divisor not in g.input_slots:
        return False
    g.guards.add((divisor, 0, False))  # checked before each run
    return True


@lowers("aten::atan2.out")
def _atan2(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not supports_operands(g, (x, y), outs[0]):
        return False
    g.macs += TRANSCENDENTAL_COST * math.prod(outs[0].bound)
    return emit_typed(g, "core.atan2", outs[0], {"self": emit_cast(g, x, _F32), "other": emit_cast(g, y, _F32)}, _F32)


@lowers_fallback("aten::pow.Tensor_Scalar_out")
@lowers("aten::pow.Tensor_Tensor_out", "aten::pow.Scalar_out")
def _pow(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["exponent"]
    if not supports_operands(g, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in DTYPES or dtype == _BOOL:
        return False
    if is_integral(dtype) and not isinstance(y, TensorSlot) and not 0 <= y == int(cast(y, dtype)):
        return False  # the kernel reports the error
    g.macs += TRANSCENDENTAL_COST * math.prod(outs[0].bound)
    return emit_typed(
        g, "core.pow", outs[0], {"self": emit_cast(g, x, dtype), "exponent": emit_cast(g, y, dtype)}, dtype
    )


# ---------------------------------------------------------------------------------------------------- one operand

_DTYPE_PRESERVING = ("abs", "neg", "sign", "ceil", "floor", "trunc", "round", "bitwise_not")  # of integers too
_FLOAT_FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sqrt", "erf", "rsqrt", "reciprocal", "sigmoid",
)  # fmt: skip


@lowers_fallback(*(f"aten::{name}.out" for name in (*_DTYPE_PRESERVING, *_FLOAT_FUNCTIONS)))
def _unary(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], op_name(a)
    if not supports_operands(g, (x,), outs[0]):
        return False
    dtype = _F32 if name in _FLOAT_FUNCTIONS else x.dtype
    if (name == "bitwise_not" and dtype == _F32) or (name == "neg" and dtype == _BOOL):
        return False
    if dtype == _F32:
        g.macs += TRANSCENDENTAL_COST * math.prod(x.bound)
    return emit_typed(g, core_kind(a), outs[0], {"self": emit_cast(g, x, dtype)}, dtype)


@lowers("aten::logical_not.out", "aten::isnan.out", "aten::isinf.out")
def _predicate(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    return supports_operands(g, (x,), outs[0]) and emit_typed(g, core_kind(a), outs[0], {"self": g.value(x)}, _BOOL)


@lowers_fallback("aten::clone.out", "dim_order_ops::_clone_dim_order.out")
@lowers("aten::_to_copy.out", "dim_order_ops::_to_dim_order_copy.out", "aten::alias_copy.out", "aten::detach_copy.out",
       "aten::lift_fresh_copy.out", "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out")  # fmt: skip
def _cast(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, (out,) = a["self"], outs
    if not supports_operands(g, (x,), out) or a.get("dim_order") not in (None, list(out.dim_order)):
        return False
    if x.dtype == out.dtype:
        nhwc = g.prefers_nhwc([x])
        g.bind(out, g.value_nhwc(x) if nhwc else g.value(x), nhwc=nhwc)
    else:
        g.emit_to("core.cast", out, {"self": g.value(x)})
    return True


# ---------------------------------------------------------------------------------------------------- clamp and where


def emit_clamp(g: GraphBuilder, x: Value, low: Any, high: Any, dtype: DType, out: TensorSlot) -> bool:
    """``min(max(x, low), high)``; either bound may be None."""
    for kind, bound in (("core.maximum", low), ("core.minimum", high)):
        if bound is not None:
            shape = np.broadcast_shapes(x.bound, type_proxy(bound).shape if isinstance(bound, TensorSlot) else ())
            x = g.emit(kind, shape, {"self": x, "other": emit_cast(g, bound, dtype)}, dtype)
    return emit_typed(g, "core.clone" if x.dtype == out.dtype else "core.cast", out, {"self": x}, out.dtype)


@lowers_fallback("aten::clamp.out", "aten::hardtanh.out", "aten::relu.out")
@lowers("aten::clamp.Tensor_out")
def _clamp(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], op_name(a)
    low, high = {"relu": (0, None), "hardtanh": (a.get("min_val"), a.get("max_val"))}.get(
        name, (a.get("min"), a.get("max"))
    )
    operands = [v for v in (x, low, high) if v is not None]
    if not supports_operands(g, operands, outs[0]) or len(operands) == 1:
        return False
    dtype = common_type(*operands) if name == "clamp" else x.dtype
    fits = name == "clamp" or all(_represents(dtype, v) for v in (low, high) if v is not None)
    return dtype in DTYPES and fits and emit_clamp(g, emit_cast(g, x, dtype), low, high, dtype, outs[0])


def _represents(dtype: DType, number: Any) -> bool:
    """Whether an integer dtype represents a number; any bound is fine for floating point."""
    return not is_integral(dtype) or (number == int(cast(number, dtype)) and number >= 0) or dtype.kind == "i"


@lowers("aten::where.self_out")
def _where(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    condition, x, y = a["condition"], a["self"], a["other"]
    if not supports_operands(g, (condition, x, y), outs[0]) or condition.dtype not in (_BOOL, np.dtype(np.uint8)):
        return False
    dtype = common_type(x, y)
    args = {"condition": g.value(condition), "self": emit_cast(g, x, dtype), "other": emit_cast(g, y, dtype)}
    return dtype in DTYPES and emit_typed(g, "core.where", outs[0], args, dtype)


@lowers("aten::masked_fill.Scalar_out")
def _masked_fill(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, mask, value = a["self"], a["mask"], a["value"]
    fits = supports_operands(g, (x, mask), outs[0]) and mask.dtype == _BOOL
    if not fits or (is_integral(x.dtype) and not np.iinfo(x.dtype if x.dtype != _BOOL else np.uint8).min
                    <= value <= np.iinfo(x.dtype if x.dtype != _BOOL else np.uint8).max):  # fmt: skip
        return False
    args = {"condition": g.value(mask), "self": emit_cast(g, value, x.dtype), "other": g.value(x)}
    return emit_typed(g, "core.where", outs[0], args, x.dtype)
