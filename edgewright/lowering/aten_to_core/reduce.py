"""Lowering of reductions, arg reductions, top-k and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgewright.ir.dtypes import DType, is_integral, to_numpy
from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    BOOL,
    F32,
    I64,
    cast_value,
    computed,
    dtype_of,
    emit_result,
    float_node,
    normalize_dim,
    require_one_dtype,
    result,
    store,
)
from edgewright.lowering.passes.layout import NHWC, LoweringContext, require


def _dims(x: Value, dim: Any, *, empty_is_all: bool = True) -> list[int]:
    """The reduced dimensions, non-negative and sorted."""
    listed = [dim] if isinstance(dim, int) else list(dim or [])
    if not listed and (empty_is_all or dim is None):
        return list(range(len(x.shape)))
    dims = sorted(normalize_dim(x, d) for d in listed)
    require(len(set(dims)) == len(dims), "dimensions must not repeat")
    return dims


def _kept_shape(x: Value, dims: Sequence[int]) -> list[int]:
    return [1 if d in dims else n for d, n in enumerate(x.bound)]


def _operand(low: LoweringContext, op: Op) -> tuple[Value, DType]:
    """The operand in the type of the ``dtype`` argument, and the type in which it is summed: integers in int64."""
    x, requested = op.args["self"], op.args.get("dtype")
    dtype = dtype_of(x) if requested is None else to_numpy(int(requested))
    total = I64 if is_integral(dtype) else dtype
    return cast_value(low, cast_value(low, computed(low, x), dtype), total), total


def reduction(kind: str) -> Lowering:
    def lower(low: LoweringContext, op: Op) -> None:
        x, out = op.args["self"], result(op)
        dims, keepdim = _dims(x, op.args.get("dim")), bool(op.args.get("keepdim"))
        if kind in ("core.sum", "core.prod", "core.mean"):
            data, dtype = _operand(low, op)
            require(kind != "core.mean" or not is_integral(dtype), "must be floating point")
        else:
            data, dtype = computed(low, x), dtype_of(x)
        if is_integral(dtype):
            _reduce_integers(low, kind, data, dims, out)
        else:
            emit_result(low, kind, out, dtype, self=data, dim=dims, keepdim=keepdim)

    return lower


def _reduce_integers(low: LoweringContext, kind: str, data: Value, dims: Sequence[int], out: Value) -> None:
    """The engine reduces integers along the innermost dimension: reduced ones are moved there, and viewed as one."""
    outer = [d for d in range(len(data.bound)) if d not in dims]
    order = [*outer, *dims]
    shape = [data.bound[d] for d in order]
    if order != sorted(order):
        data = low.compute("core.permute", shape, data.dtype, self=data, dims=order)
    kept = shape[: len(outer)]
    rows = low.view(data, (*kept, math.prod(shape[len(outer) :])))
    store(low, low.compute(kind, kept, data.dtype, self=rows, dim=[len(kept)], keepdim=False), out)


def mean(low: LoweringContext, op: Op) -> None:
    """A mean over height and width is global average pooling in NHWC; any other is a reduction."""
    x, dims, out = op.args["self"], op.args.get("dim"), result(op)
    spatial = len(x.shape) == 4 and dims and sorted(d % 4 for d in dims) == [2, 3] and op.args.get("keepdim")
    if spatial and op.args.get("dtype") is None and x.dtype == out.dtype:
        low.emit("core.global_avg_pool2d", low.make(out, NHWC), self=computed(low, x, NHWC))
    else:
        reduction("core.mean")(low, op)


def reduce_any(low: LoweringContext, op: Op) -> None:
    x, out = op.args["self"], result(op)
    dims = _dims(x, op.args.get("dim"), empty_is_all=False)
    data = cast_value(low, computed(low, x), BOOL)
    if dims:
        _reduce_integers(low, "core.amax", data, dims, out)
    else:
        store(low, data, out)


def cumsum(low: LoweringContext, op: Op) -> None:
    data, dtype = _operand(low, op)
    dtype = dtype if is_integral(dtype) else F32
    dim = normalize_dim(op.args["self"], op.args["dim"])
    emit_result(low, "core.cumsum", result(op), dtype, self=cast_value(low, data, dtype), dim=dim)


def variance(low: LoweringContext, op: Op) -> None:
    """``var`` and ``var_mean``, in float32."""
    x, dims = op.args["self"], _dims(op.args["self"], op.args.get("dim"))
    correction = op.args.get("correction", 1) if "unbiased" not in op.args else int(bool(op.args["unbiased"]))
    divisor = max(math.prod(x.bound[d] for d in dims) - (1 if correction is None else correction), 0)
    shape, data = _kept_shape(x, dims), cast_value(low, computed(low, x), F32)
    moment = low.compute("core.mean", shape, F32, self=data, dim=dims, keepdim=True)
    square = float_node(low, "core.square", float_node(low, "core.sub", data, moment))
    total = low.compute("core.sum", shape, F32, self=square, dim=dims, keepdim=True)
    values = (float_node(low, "core.div", total, float(divisor)), moment)
    for out, value in zip(op.outputs, values, strict=False):
        assert out is not None
        store(low, value, out)


# --------------------------------------------------------------------------------------------------- arg reductions


def arg_reduction(low: LoweringContext, op: Op) -> None:
    x, dim = op.args["self"], op.args["dim"]
    data = computed(low, x)
    if dim is None:
        data = low.view(data, (math.prod(x.bound),))
    store(low, _arg_reduce(low, f"core.{op.kind}", data, 0 if dim is None else normalize_dim(x, dim)), result(op))


def _arg_reduce(low: LoweringContext, kind: str, data: Value, dim: int) -> Value:
    return low.compute(kind, _kept_shape(data, [dim]), I64, self=data, dim=dim, keepdim=True)


def extreme_dim(low: LoweringContext, op: Op) -> None:
    """``max_dim`` and ``min_dim``: the extremes along a dimension, and their indices."""
    x, dim = op.args["self"], normalize_dim(op.args["self"], op.args["dim"])
    data = computed(low, x)
    _store_gathered(low, op, data, dim, _arg_reduce(low, f"core.arg{op.kind[:3]}", data, dim))


def topk(low: LoweringContext, op: Op) -> None:
    x, dim, k = op.args["self"], normalize_dim(op.args["self"], op.args["dim"]), int(op.args["k"])
    data, shape = computed(low, x), [k if d == dim else n for d, n in enumerate(x.bound)]
    largest = bool(op.args["largest"])
    indices = low.compute("core.topk_indices", shape, I64, self=data, k=k, dim=dim, largest=largest)
    _store_gathered(low, op, data, dim, indices)


def _store_gathered(low: LoweringContext, op: Op, data: Value, dim: int, indices: Value) -> None:
    """Store the elements at ``indices`` along a dimension, and the indices themselves."""
    elements = low.compute("core.gather", indices.bound, data.dtype, self=data, dim=dim, index=indices)
    require_one_dtype(op.args["self"], result(op))
    for out, value in zip(op.outputs, (elements, indices), strict=False):
        assert out is not None
        store(low, value, out)


LOWERINGS: dict[str, Lowering] = {
    **{name: reduction(f"core.{name}") for name in ("sum", "prod", "amax", "amin")},
    "mean": mean, "any": reduce_any, "cumsum": cumsum, "var": variance, "var_mean": variance,
    "argmax": arg_reduction, "argmin": arg_reduction, "max_dim": extreme_dim, "min_dim": extreme_dim, "topk": topk,
}  # fmt: skip
