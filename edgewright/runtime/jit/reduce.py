"""Lowering of reductions and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.dtypes import is_integral, to_numpy
from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import DTYPES, GraphBuilder
from edgewright.runtime.jit.registry import Args, lowers, lowers_fallback, op_name
from edgewright.runtime.jit.typed_elementwise import emit_cast, emit_typed
from edgewright.runtime.tensor import TensorSlot

_F32, _I64, _BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)


def normalize_dim(x: TensorSlot, dim: Any) -> int | None:
    """A non-negative dimension; None if the tensor does not have it."""
    rank = len(x.bound)
    return int(dim) % rank if rank and dim is not None and -rank <= dim < rank else None


def flatten_reduced(g: GraphBuilder, data: Value, dims: Sequence[int], out: TensorSlot) -> Value | None:
    """View the reduced dimensions as one, the innermost."""
    outer = [d for d in range(len(data.bound)) if d not in dims]
    order = [*outer, *dims]
    shape = [data.bound[d] for d in order]
    if order != sorted(order):
        data = g.emit_core("core.permute", shape, {"self": data, "dims": order}, data.dtype)
    count = math.prod(shape[len(outer) :])
    if math.prod(shape[: len(outer)]) != math.prod(out.bound):
        return None
    return g.view(data, (*shape[: len(outer)], count))


def emit_integer_reduction(g: GraphBuilder, kind: str, data: Value, dims: Sequence[int], out: TensorSlot) -> bool:
    """An integer reduction in the operand's dtype, cast to that of ``out``."""
    rows = flatten_reduced(g, data, dims, out)
    if rows is None:
        return False
    args = {"self": rows, "dim": [len(rows.bound) - 1], "keepdim": False}
    result = g.emit_core(kind, rows.bound[:-1], args, data.dtype)
    result = g.view(result, out.bound)
    g.macs += math.prod(data.bound)
    return emit_typed(g, "core.clone" if data.dtype == out.dtype else "core.cast", out, {"self": result}, out.dtype)


def reduced_dims(x: TensorSlot, dim: Any, *, empty_is_all: bool = True) -> list[int] | None:
    """Sorted non-negative dimensions; None if they are invalid or repeated."""
    listed = [dim] if isinstance(dim, int) else list(dim or [])
    if not listed and (empty_is_all or dim is None):
        return list(range(len(x.bound)))
    resolved = [normalize_dim(x, d) for d in listed]
    return (
        None if None in resolved or len(set(resolved)) < len(resolved) else sorted(d for d in resolved if d is not None)
    )


@lowers_fallback("aten::sum.IntList_out", "aten::amax.out", "aten::amin.out", "aten::mean.out")
@lowers("aten::prod.int_out", "aten::prod.out", "aten::max.unary_out", "aten::min.unary_out", "aten::mean.dtype_out")
def _reduction(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, name = a["self"], outs[0], op_name(a)
    kind = {"max": "core.amax", "min": "core.amin"}.get(name, f"core.{name}")
    dims = reduced_dims(x, a.get("dim"))
    if not g.supports(x, out) or g.constant_data(x) is not None or dims is None or not x.bound:
        return False
    operand_dtype = x.dtype if a.get("dtype") is None else to_numpy(int(a["dtype"]))
    exact = kind in ("core.sum", "core.prod")
    dtype = _I64 if exact and is_integral(operand_dtype) else operand_dtype
    if dtype not in DTYPES or (kind == "core.mean" and dtype != _F32):
        return False
    data = emit_cast(g, x, operand_dtype)
    data = data if operand_dtype == dtype else g.emit_core("core.cast", data.bound, {"self": data}, dtype)
    if dtype != _F32:
        return bool(dims) and emit_integer_reduction(g, kind, data, dims, out)
    result = g.emit_core(kind, [1 if d in dims else n for d, n in enumerate(x.bound)],
                     {"self": data, "dim": dims, "keepdim": True}, _F32)  # fmt: skip
    if math.prod(result.bound) != math.prod(out.bound):
        return False
    return emit_typed(
        g, "core.clone" if out.dtype == _F32 else "core.cast", out, {"self": g.view(result, out.bound)}, out.dtype
    )


@lowers("aten::any.out", "aten::any.dims_out", "aten::any.all_out")
def _any(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out = a["self"], outs[0]
    dims = reduced_dims(x, a.get("dim"), empty_is_all=False)
    if not g.supports(x, out) or g.constant_data(x) is not None or dims is None or not x.bound:
        return False
    data = emit_cast(g, x, _BOOL)
    if not dims:
        return data.bound == out.bound and emit_typed(g, "core.clone" if out.dtype == _BOOL else "core.cast", out,
                                                  {"self": data}, out.dtype)  # fmt: skip
    return emit_integer_reduction(g, "core.amax", data, dims, out)


@lowers("aten::cumsum.out")
def _cumsum(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, out, dim = a["self"], outs[0], normalize_dim(a["self"], a["dim"])
    operand_dtype = x.dtype if a["dtype"] is None else to_numpy(int(a["dtype"]))
    if not g.supports(x, out) or dim is None or operand_dtype not in DTYPES or g.constant_data(x) is not None:
        return False
    dtype = _I64 if is_integral(operand_dtype) else _F32
    data = emit_cast(g, x, operand_dtype)
    data = data if operand_dtype == dtype else g.emit_core("core.cast", data.bound, {"self": data}, dtype)
    g.macs += math.prod(x.bound)
    return emit_typed(g, "core.cumsum", out, {"self": data, "dim": dim}, dtype)
