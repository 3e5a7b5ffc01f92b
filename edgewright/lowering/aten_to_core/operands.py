"""Operands and results of core operators: type promotion, scalars, broadcasting, dynamic sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.aten.reference.elementwise import cast, result_type
from edgewright.ir.dtypes import DType, bfloat16
from edgewright.ir.graph import Array, Dim, Op, QParams, Value
from edgewright.lowering.passes.layout import LoweringContext, Order, identity, require

F32, I64, BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)
FLOATS = (
    F32,
    np.dtype(np.float16),
    bfloat16,
)  # 16-bit types are computed in float32; every result is rounded (``engine/graph/legalize.py``)


def result(op: Op) -> Value:
    """The first result of an operator."""
    out = op.outputs[0]
    assert out is not None
    return out


def dtype_of(value: Value) -> DType:
    """The type of a tensor."""
    assert value.dtype is not None
    return value.dtype


def require_floats(*values: Value | None) -> None:
    present = [v.dtype for v in values if v is not None]
    require(present[0] in FLOATS and len(set(present)) == 1, "must be of one floating-point type")


def require_one_dtype(*values: Value) -> None:
    require(len({v.dtype for v in values}) == 1, "must be of one type")


def computed(low: LoweringContext, value: Value, order: Order | None = None) -> Value:
    """An operand that must not be a constant."""
    require(not value.constant, "the operand must be computed")
    return low.get(value, order)


def normalize_dim(value: Value, dim: Any) -> int:
    """A non-negative dimension."""
    rank = len(value.shape)
    require(rank and -rank <= dim < rank, "the tensor must have the dimension")
    return int(dim) % rank


# ------------------------------------------------------------------------------------------------------------ types


def common_type(*args: Any) -> DType:
    """The type of PyTorch's type promotion of tensors and numbers."""
    tensors = [a for a in args if isinstance(a, Value)]
    dtype = dtype_of(tensors[0])
    if all(v.dtype == dtype for v in tensors) and (dtype in FLOATS or len(tensors) == len(args)):
        return dtype
    return result_type(*(_type_proxy(a) for a in args))


def _type_proxy(arg: Any) -> Any:
    """What type promotion reads of an argument: dtype and rank, without contents."""
    return np.broadcast_to(np.zeros((), arg.dtype), arg.bound) if isinstance(arg, Value) else arg


def cast_value(low: LoweringContext, value: Value, dtype: DType | None) -> Value:
    """A value of the core graph in another type; None keeps its own."""
    if dtype is None or value.dtype == dtype:
        return value
    if value.data is not None:
        return low.constant(value.data.astype(dtype, order="C"))
    return low.compute("core.cast", value.bound, dtype, self=value)


def scalar(low: LoweringContext, number: Any, dtype: DType) -> Value:
    return low.constant(np.asarray(cast(number, dtype)))


def store(low: LoweringContext, value: Value, out: Value) -> None:
    """Make a value of the core graph, in logical order, the result ``out`` of the operator: viewed and cast."""
    require(math.prod(value.bound) == math.prod(out.bound), "the result must have the elements of its tensor")
    low.alias(out, identity(len(out.shape)), cast_value(low, low.view(value, out.bound), out.dtype))


def emit_result(
    low: LoweringContext, kind: str, out: Value, dtype: DType | None = None, order: Order | None = None, **args: Any
) -> None:
    """Append a node whose result is of ``dtype``, and cast that to the type of ``out``; None is the type of ``out``."""
    if dtype is None or out.dtype == dtype:
        low.emit(kind, low.make(out, order), **args)
        return
    shape = out.bound if order is None else [out.bound[d] for d in order]
    low.emit("core.cast", low.make(out, order), self=low.compute(kind, shape, dtype, **args))


def float_node(low: LoweringContext, kind: str, a: Value, b: Any = None) -> Value:
    """A float32 operator of one or two operands; Python numbers become constants."""
    if b is None:
        return low.compute(kind, a.bound, F32, self=a)
    other = b if isinstance(b, Value) else scalar(low, b, F32)
    return low.compute(kind, np.broadcast_shapes(a.bound, other.bound), F32, self=a, other=other)


# --------------------------------------------------------------------------------------------------------- operands


def operand(low: LoweringContext, op: Op, name: str, order: Order, dtype: DType | None = None) -> Value:
    """An operand of an elementwise operator in dimension order ``order`` and in ``dtype``; numbers become constants."""
    value = op.args[name]
    if not isinstance(value, Value):
        return low.constant(np.full((1,) if order else (), cast(value, dtype or dtype_of(result(op)))))
    if len(value.shape) == len(order):
        stored = low.get(value, order)
    elif value.constant:
        stored = low.constant(*_expand_constant(value, order))
    else:
        stored = _unsqueeze_operand(low, value, order)
    return stored if value.q is not None else cast_value(low, stored, dtype)


def _unsqueeze_operand(low: LoweringContext, value: Value, order: Order) -> Value:
    """A computed operand of lower rank. Nodes broadcast it in the original order; any other needs a transpose."""
    if order == identity(len(order)) or not value.shape:
        return low.get(value)
    missing = len(order) - len(value.shape)
    shape = [1] * missing + list(value.bound)
    size = [1] * missing + reshape_sizes(value)
    unsqueezed, transposed = low.temporary(shape, value), low.temporary([shape[d] for d in order], value)
    low.emit("core.view", unsqueezed, self=low.get(value), size=size)
    low.emit("core.permute", transposed, self=unsqueezed, dims=list(order))
    return transposed


def _expand_constant(value: Value, order: Order) -> tuple[Array, QParams | None]:
    """A constant of lower rank with the broadcast dimensions added, in ``order``."""
    assert value.data is not None
    if order == identity(len(order)):
        return np.ascontiguousarray(value.data if value.data.ndim else value.data.reshape(1)), value.q
    data = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    return np.ascontiguousarray(data.transpose(order)), value.q


def limits(op: Op) -> dict[str, Any]:
    """The range of an activation that was fused into the operator."""
    return {"limits": op.args["limits"]} if op.args.get("limits") else {}


def reshape_sizes(value: Value, order: Sequence[int] | None = None) -> list[int]:
    """Size arguments of a reshape to a value's shape: 0 marks the dynamic dimension."""
    sizes = [0 if isinstance(s, Dim) else s for s in value.shape]
    return sizes if order is None else [sizes[d] for d in order]
