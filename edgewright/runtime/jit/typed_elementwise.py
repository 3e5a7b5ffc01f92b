"""Kernel calls on single elements of any type, as operators of a device graph.

What has one type in PyTorch, by its rules of promotion, is brought into it first; the result is brought into that of
the tensor it is stored in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import cast, result_type
from edgewright.ir.dtypes import DType, is_integral
from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import TYPES, Maker, new
from edgewright.runtime.jit.registry import Args, otherwise, taken
from edgewright.runtime.tensor import TensorSlot

_F32, _TRUTH = np.dtype(np.float32), np.dtype(np.bool_)
COSTLY = 10  # products of numbers that a function of an element is worth


def name_of(a: Args) -> str:
    name: str = a["key"].partition("::")[2].partition(".")[0]
    return name


def like(given: Any) -> Any:
    """What promotion asks of an argument: its type and rank, without contents."""
    return np.broadcast_to(np.zeros((), given.dtype), given.bound) if isinstance(given, TensorSlot) else given


def common_type(*given: Any) -> DType:
    return result_type(*map(like, given))


def as_type(m: Maker, given: Any, dtype: DType) -> Value:
    """A tensor or a number in a type."""
    if not isinstance(given, TensorSlot):
        return new((), np.asarray(cast(given, dtype)))
    held = m.planes(given)
    if held.dtype == dtype:
        return held
    if held.data is not None:
        return new(held.bound, held.data.astype(dtype, order="C"))
    return m.between("cast", held.bound, {"self": held}, dtype)


def finish(m: Maker, kind: str, out: TensorSlot, args: dict[str, Any], dtype: DType) -> bool:
    """An operator whose result is of ``dtype``, in the type of the tensor that holds it."""
    if out.dtype == dtype:
        m.add(kind, out, args)
    else:
        m.add("cast", out, {"self": m.between(kind, out.bound, args, dtype)})
    m.macs += math.prod(out.bound)
    return True


def spread(given: Sequence[Any], out: TensorSlot) -> bool:
    """Whether operands are as large as the result, once broadcast."""
    shapes = [g.bound for g in given if isinstance(g, TensorSlot)]
    try:
        return np.broadcast_shapes(*shapes) == out.bound
    except ValueError:
        return False


def usable(m: Maker, given: Sequence[Any], out: TensorSlot) -> bool:
    slots = [g for g in given if isinstance(g, TensorSlot)]
    return bool(slots) and m.known(*slots, out) and spread(given, out)


# --------------------------------------------------------------------------------------------------- two operands


@otherwise(*(f"aten::{n}.{o}" for n in ("add", "sub", "mul") for o in ("out", "Scalar_out")), "aten::rsub.Scalar_out")
def _sum(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    name, (x, y), alpha = name_of(a), (a["self"], a["other"]), a.get("alpha", 1)
    if not usable(m, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in TYPES or (is_integral(dtype) and isinstance(alpha, float)) or (name == "sub" and dtype == _TRUTH):
        return False
    left, right = (x, y) if name != "rsub" else (y, x)
    first, second = as_type(m, left, dtype), as_type(m, right, dtype)
    if alpha != 1 and second.data is not None:
        second = new(second.bound, np.asarray(second.data * cast(alpha, dtype)))
    elif alpha != 1:
        scaled = {"self": second, "other": as_type(m, alpha, dtype)}
        second = m.between("mul", second.bound, scaled, dtype)
    return finish(m, "sub" if name == "rsub" else name, outs[0], {"self": first, "other": second}, dtype)


@otherwise("aten::maximum.out", "aten::minimum.out")
@taken(*(f"aten::bitwise_{n}.{o}_out" for n in ("and", "or", "xor") for o in ("Tensor", "Scalar")))
@taken(*(f"aten::bitwise_{n}_shift.{o}_out" for n in ("left", "right") for o in ("Tensor", "Tensor_Scalar")))
def _same_type(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y, name = a["self"], a["other"], name_of(a)
    if not usable(m, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in TYPES or (name.startswith("bitwise") and not is_integral(dtype)):
        return False
    if name.endswith("shift") and dtype == _TRUTH:
        return False
    return finish(m, name, outs[0], {"self": as_type(m, x, dtype), "other": as_type(m, y, dtype)}, dtype)


@taken(*(f"aten::{n}.{o}_out" for n in ("eq", "ne", "lt", "le", "gt", "ge") for o in ("Tensor", "Scalar")))
def _compared(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not usable(m, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in TYPES:
        return False
    return finish(m, name_of(a), outs[0], {"self": as_type(m, x, dtype), "other": as_type(m, y, dtype)}, _TRUTH)


@taken("aten::logical_and.out", "aten::logical_or.out", "aten::logical_xor.out")
def _logic(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not usable(m, (x, y), outs[0]):
        return False
    return finish(m, name_of(a), outs[0], {"self": as_type(m, x, _TRUTH), "other": as_type(m, y, _TRUTH)}, _TRUTH)


_ROUNDED = {None: "div", "floor": "floor_divide", "trunc": "trunc_divide"}


@otherwise("aten::div.out", "aten::div.Scalar_out")
@taken("aten::div.out_mode", "aten::div.Scalar_mode_out", "aten::floor_divide.out")
@taken(*(f"aten::{n}.{o}_out" for n in ("fmod", "remainder") for o in ("Tensor", "Scalar")))
def _quotient(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Of integers only by what is known not to be zero: a kernel says so if it is."""
    x, y, name = a["self"], a["other"], name_of(a)
    mode = "floor" if name == "floor_divide" else a.get("rounding_mode")
    if not usable(m, (x, y), outs[0]) or mode not in _ROUNDED:
        return False
    kind = name if name in ("fmod", "remainder") else _ROUNDED[mode]
    dtype = common_type(x, y)
    if kind == "div" and is_integral(dtype):
        dtype = _F32
    if dtype not in TYPES or dtype == _TRUTH or (is_integral(dtype) and not never_zero(m, y)):
        return False
    return finish(m, kind, outs[0], {"self": as_type(m, x, dtype), "other": as_type(m, y, dtype)}, dtype)


def never_zero(m: Maker, divisor: Any) -> bool:
    if not isinstance(divisor, TensorSlot):
        return bool(divisor != 0)
    data = m.constant(divisor)
    if data is not None:
        return bool(np.all(data))
    if m.is_made(divisor) and divisor not in m.given:
        return False
    m.guards.add((divisor, 0, False))  # looked at before each run
    return True


@taken("aten::atan2.out")
def _angle(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["other"]
    if not usable(m, (x, y), outs[0]):
        return False
    m.macs += COSTLY * math.prod(outs[0].bound)
    return finish(m, "atan2", outs[0], {"self": as_type(m, x, _F32), "other": as_type(m, y, _F32)}, _F32)


@otherwise("aten::pow.Tensor_Scalar_out")
@taken("aten::pow.Tensor_Tensor_out", "aten::pow.Scalar_out")
def _power(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, y = a["self"], a["exponent"]
    if not usable(m, (x, y), outs[0]):
        return False
    dtype = common_type(x, y)
    if dtype not in TYPES or dtype == _TRUTH:
        return False
    if is_integral(dtype) and not isinstance(y, TensorSlot) and not 0 <= y == int(cast(y, dtype)):
        return False  # the kernel says what is wrong
    m.macs += COSTLY * math.prod(outs[0].bound)
    return finish(m, "pow", outs[0], {"self": as_type(m, x, dtype), "exponent": as_type(m, y, dtype)}, dtype)


# ---------------------------------------------------------------------------------------------------- one operand

_WHOLE = ("abs", "neg", "sign", "ceil", "floor", "trunc", "round", "bitwise_not")  # of integers, in their own type
_REAL = (
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sqrt", "erf", "rsqrt", "reciprocal", "sigmoid",
)  # fmt: skip


@otherwise(*(f"aten::{name}.out" for name in (*_WHOLE, *_REAL)))
def _function(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], name_of(a)
    if not usable(m, (x,), outs[0]):
        return False
    dtype = _F32 if name in _REAL else x.dtype
    if (name == "bitwise_not" and dtype == _F32) or (name == "neg" and dtype == _TRUTH):
        return False
    if dtype == _F32:
        m.macs += COSTLY * math.prod(x.bound)
    return finish(m, name, outs[0], {"self": as_type(m, x, dtype)}, dtype)


@taken("aten::logical_not.out", "aten::isnan.out", "aten::isinf.out")
def _truth(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    return usable(m, (x,), outs[0]) and finish(m, name_of(a), outs[0], {"self": m.planes(x)}, _TRUTH)


@otherwise("aten::clone.out", "dim_order_ops::_clone_dim_order.out")
@taken("aten::_to_copy.out", "dim_order_ops::_to_dim_order_copy.out", "aten::alias_copy.out", "aten::detach_copy.out",
       "aten::lift_fresh_copy.out", "et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out")  # fmt: skip
def _cast(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, (out,) = a["self"], outs
    if not usable(m, (x,), out) or a.get("dim_order") not in (None, list(out.dim_order)):
        return False
    if x.dtype == out.dtype:
        pixels = m.like([x])
        m.bind(out, m.pixels(x) if pixels else m.planes(x), pixels=pixels)
    else:
        m.add("cast", out, {"self": m.planes(x)})
    return True


# ------------------------------------------------------------------------------------------------- limits and choice


def limited(m: Maker, x: Value, low: Any, high: Any, dtype: DType, out: TensorSlot) -> bool:
    """No lower than one, then no higher than the other; either may be None."""
    for kind, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            shape = np.broadcast_shapes(x.bound, like(bound).shape if isinstance(bound, TensorSlot) else ())
            x = m.between(kind, shape, {"self": x, "other": as_type(m, bound, dtype)}, dtype)
    return finish(m, "clone" if x.dtype == out.dtype else "cast", out, {"self": x}, out.dtype)


@otherwise("aten::clamp.out", "aten::hardtanh.out", "aten::relu.out")
@taken("aten::clamp.Tensor_out")
def _clamped(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, name = a["self"], name_of(a)
    low, high = {"relu": (0, None), "hardtanh": (a.get("min_val"), a.get("max_val"))}.get(
        name, (a.get("min"), a.get("max"))
    )
    given = [v for v in (x, low, high) if v is not None]
    if not usable(m, given, outs[0]) or len(given) == 1:
        return False
    dtype = common_type(*given) if name == "clamp" else x.dtype
    fits = name == "clamp" or all(_has(dtype, v) for v in (low, high) if v is not None)
    return dtype in TYPES and fits and limited(m, as_type(m, x, dtype), low, high, dtype, outs[0])


def _has(dtype: DType, number: Any) -> bool:
    """Whether a type has a number; of reals all are near enough."""
    return not is_integral(dtype) or (number == int(cast(number, dtype)) and number >= 0) or dtype.kind == "i"


@taken("aten::where.self_out")
def _where(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    which, x, y = a["condition"], a["self"], a["other"]
    if not usable(m, (which, x, y), outs[0]) or which.dtype not in (_TRUTH, np.dtype(np.uint8)):
        return False
    dtype = common_type(x, y)
    args = {"condition": m.planes(which), "self": as_type(m, x, dtype), "other": as_type(m, y, dtype)}
    return dtype in TYPES and finish(m, "where", outs[0], args, dtype)


@taken("aten::masked_fill.Scalar_out")
def _masked(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, mask, value = a["self"], a["mask"], a["value"]
    fits = usable(m, (x, mask), outs[0]) and mask.dtype == _TRUTH
    if not fits or (is_integral(x.dtype) and not np.iinfo(x.dtype if x.dtype != _TRUTH else np.uint8).min
                    <= value <= np.iinfo(x.dtype if x.dtype != _TRUTH else np.uint8).max):  # fmt: skip
        return False
    args = {"condition": m.planes(mask), "self": as_type(m, value, x.dtype), "other": m.planes(x)}
    return finish(m, "where", outs[0], args, x.dtype)
