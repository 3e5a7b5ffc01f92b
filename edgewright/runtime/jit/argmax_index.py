"""Lowering of argmax, top-k, element gather/scatter, and indexing by several index tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.gather import lower_index
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.reduce import normalize_dim
from edgewright.runtime.jit.registry import MULTI_RESULT, Args, core_kind, lowers, lowers_fallback, op_name
from edgewright.runtime.jit.typed_elementwise import emit_cast
from edgewright.runtime.tensor import TensorSlot

_I64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


# --------------------------------------------------------------------------------------------------- argmax and topk


@lowers("aten::argmax.out", "aten::argmin.out")
def _argmax(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim, out = a["self"], a["dim"], outs[0]
    if not g.supports(x, out) or out.dtype != _I64 or g.constant_data(x) is not None or not x.bound:
        return False
    data, axis = g.value(x), normalize_dim(x, dim)
    if dim is None:
        data, axis = g.view(data, (math.prod(x.bound),)), 0
    if axis is None:
        return False
    shape = [1 if d == axis else n for d, n in enumerate(data.bound)]
    index = g.emit_core(core_kind(a), shape, {"self": data, "dim": axis, "keepdim": True}, _I64)
    g.macs += math.prod(x.bound)
    g.emit_to("core.view", out, {"self": index, "size": list(out.bound)})
    return True


MULTI_RESULT |= {"aten::max.dim_max", "aten::min.dim_min", "aten::topk.values"}


def store_gathered(g: GraphBuilder, x: TensorSlot, dim: int, indices: Value, outs: Sequence[TensorSlot]) -> bool:
    """Store the elements at ``indices`` along a dimension, and the indices themselves."""
    args = {"self": g.value(x), "dim": dim, "index": indices, "sparse_grad": False}
    elements = g.emit_core("core.gather", indices.bound, args, x.dtype)
    for out, value in zip(outs, (elements, indices), strict=True):
        if math.prod(out.bound) != math.prod(value.bound):
            return False
        g.emit_to("core.view", out, {"self": value, "size": list(out.bound)})
    g.macs += math.prod(x.bound)
    return True


@lowers("aten::max.dim_max", "aten::min.dim_min")
def _extreme(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], normalize_dim(a["self"], a["dim"])
    if not g.supports_same_dtype(x, outs[0]) or dim is None or outs[1].dtype != _I64 or g.constant_data(x) is not None:
        return False
    shape = [1 if d == dim else n for d, n in enumerate(x.bound)]
    kind = "core.argmax" if op_name(a) == "max" else "core.argmin"
    indices = g.emit_core(kind, shape, {"self": g.value(x), "dim": dim, "keepdim": True}, _I64)
    return store_gathered(g, x, dim, indices, outs)


@lowers("aten::topk.values")
def _topk(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], normalize_dim(a["self"], a["dim"])
    if not g.supports_same_dtype(x, outs[0]) or dim is None or outs[1].dtype != _I64 or not 0 < a["k"] <= x.bound[dim]:
        return False
    shape = [a["k"] if d == dim else n for d, n in enumerate(x.bound)]
    if g.constant_data(x) is not None:
        return False
    args = {"self": g.value(x), "k": int(a["k"]), "dim": dim, "largest": bool(a["largest"])}
    return store_gathered(g, x, dim, g.emit_core("core.topk_indices", shape, args, _I64), outs)


# --------------------------------------------------------------------------------------------- element gather/scatter


@lowers("aten::gather.out", "aten::scatter.src_out", "aten::scatter.value_out", "aten::scatter_add.out")
def _gather_scatter(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, index, dim, name = a["self"], a["index"], normalize_dim(a["self"], a["dim"]), op_name(a)
    if (
        not g.supports_same_dtype(x, outs[0])
        or dim is None
        or len(index.bound) != len(x.bound)
        or g.constant_data(x) is not None
    ):
        return False
    index_value = lower_index(g, index, x.bound[dim], wrap=False)
    fits = [n <= size for d, (n, size) in enumerate(zip(index.bound, x.bound, strict=True)) if d != dim]
    if index_value is None or not all(fits):
        return False
    args: dict[str, Any] = {"self": g.value(x), "dim": dim, "index": index_value}
    if name == "gather":
        args["sparse_grad"] = False
    elif "value" in a:
        value = emit_cast(g, a["value"], x.dtype).data
        assert value is not None
        args["src"] = make_value(index.bound, np.full(index.bound, value))
    else:
        source = a["src"]
        if not g.supports_same_dtype(x, source) or any(
            n > size for n, size in zip(index.bound, source.bound, strict=True)
        ):
            return False
        args["src"] = g.value(source)
    g.macs += math.prod(index.bound)
    g.emit_to(f"core.{name}", outs[0], args)
    return True


@lowers("aten::index_select.out")
def _index_select(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, dim = a["self"], normalize_dim(a["self"], a["dim"])
    if (
        not g.supports_same_dtype(x, outs[0])
        or dim is None
        or len(a["index"].bound) > 1
        or g.constant_data(x) is not None
    ):
        return False
    index = lower_index(g, a["index"], x.bound[dim], wrap=False)
    if index is None:
        return False
    index_1d = g.view(index, outs[0].bound[dim : dim + 1])
    g.emit_to("core.index_select", outs[0], {"self": g.value(x), "dim": dim, "index": index_1d})
    return True


# -------------------------------------------------------------------------------------------- several index tensors


def linearize_indices(g: GraphBuilder, x: TensorSlot, indices: Sequence[Any]) -> tuple[Value, int, Value] | None:
    """Flatten index tensors of adjacent dimensions to one linear index over those dimensions, viewed as one.

    Returns the viewed data, the dimension, and the index.
    """
    present = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not present or any(i.dtype.kind == "b" or i.dtype == np.uint8 for _, i in present):
        return None
    first, last = present[0][0], present[-1][0]
    if last - first != len(present) - 1 or last >= len(x.bound):
        return None
    shape = np.broadcast_shapes(*(i.bound for _, i in present))
    linear: Value | None = None
    for d, slot in present:
        size = x.bound[d]
        raw = lower_index(g, slot, size, wrap=True)
        if raw is None:
            return None
        index = _normalize_indices(g, raw, size)
        if linear is None:
            linear = index
        else:
            base = g.emit_core("core.mul", linear.bound, {"self": linear, "other": _int64_scalar(size)}, _I64)
            both = np.broadcast_shapes(linear.bound, index.bound)
            linear = g.emit_core("core.add", both, {"self": base, "other": index}, _I64)
    assert linear is not None
    if linear.bound != shape:
        return None
    sizes = (*x.bound[:first], math.prod(x.bound[first : last + 1]), *x.bound[last + 1 :])
    return g.view(g.value(x), sizes), first, linear


def _normalize_indices(g: GraphBuilder, index: Value, size: int) -> Value:
    """Indices as int64, with negative ones counted from the end."""
    if index.data is not None:
        return make_value(index.bound, np.asarray(index.data.astype(np.int64) % size))
    if index.dtype != _I64:
        index = g.emit_core("core.cast", index.bound, {"self": index}, _I64)
    negative = g.emit_core("core.lt", index.bound, {"self": index, "other": _int64_scalar(0)}, _BOOL)
    wrapped = g.emit_core("core.add", index.bound, {"self": index, "other": _int64_scalar(size)}, _I64)
    return g.emit_core("core.where", index.bound, {"condition": negative, "self": wrapped, "other": index}, _I64)


def _int64_scalar(n: int) -> Value:
    return make_value((), np.asarray(n, np.int64))


@lowers_fallback("aten::index.Tensor_out")
def _index(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    linear = (
        linearize_indices(g, x, a["indices"])
        if g.supports_same_dtype(x, outs[0]) and g.constant_data(x) is None
        else None
    )
    if linear is None:
        return False
    data, dim, index = linear
    g.emit_to("core.index", outs[0], {"self": data, "indices": [index if d == dim else None for d in range(dim + 1)]})
    return True


@lowers_fallback("aten::index_put.out")
def _index_put(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, values = a["self"], a["values"]
    if not g.supports_same_dtype(x, values, outs[0]) or a["accumulate"] or g.constant_data(x) is not None:
        return False
    if _is_mask(a["indices"], x) and math.prod(values.bound) == 1:
        fill = g.view(g.value(values), ())
        mask = g.value(a["indices"][0])
        mask = g.view(mask, (*mask.bound, *(1,) * (len(x.bound) - len(mask.bound))))
        g.emit_to("core.where", outs[0], {"condition": mask, "self": fill, "other": g.value(x)})
        return True
    linear = linearize_indices(g, x, a["indices"])
    if linear is None:
        return False
    data, dim, index = linear
    shape = (*data.bound[:dim], *index.bound, *data.bound[dim + 1 :])
    rows = g.value(values)
    if rows.bound != shape:
        if len(rows.bound) > len(shape):
            return False
        args = {"self": rows, "size": list(shape), "implicit": False}
        rows = g.emit_core("core.expand", shape, args, x.dtype)
    indices = [index if d == dim else None for d in range(dim + 1)]
    args = {"self": data, "indices": indices, "values": rows, "accumulate": False}
    result = g.emit_core("core.index_put", data.bound, args, x.dtype)
    g.emit_to("core.view", outs[0], {"self": result, "size": list(outs[0].bound)})
    return True


def _is_mask(indices: Sequence[Any], x: TensorSlot) -> bool:
    mask = indices[0] if len(indices) == 1 else None
    is_bool = isinstance(mask, TensorSlot) and mask.dtype == _BOOL and not mask.dynamic
    return is_bool and mask is not None and bool(mask.bound) and mask.bound == x.bound[: len(mask.bound)]
