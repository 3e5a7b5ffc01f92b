"""Lowering of gather and scatter, indexing by tensors, and embedding. Of 8-, 4- or 2-bit embedding tables, only the
gathered rows are dequantized.

The engine's kernels do not check indices: ``LoweringContext.require_in_range`` does, or has them checked at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Op, Value
from edgewright.lowering.aten_to_core.elementwise import Lowering
from edgewright.lowering.aten_to_core.operands import (
    BOOL,
    F32,
    I64,
    cast_value,
    computed,
    dtype_of,
    float_node,
    normalize_dim,
    require_one_dtype,
    result,
    scalar,
    store,
)
from edgewright.lowering.passes.layout import LoweringContext, require

_U8 = np.dtype(np.uint8)


def _index(low: LoweringContext, index: Value, size: int, *, wrap: bool = False) -> Value:
    """An index tensor for a dimension of ``size``."""
    require(index.dtype in (I64, np.dtype(np.int32)), "indices must be int64 or int32")
    low.require_in_range(index, size, wrap=wrap)
    return low.get(index)


# --------------------------------------------------------------------------------------------- element gather/scatter


def gather_scatter(low: LoweringContext, op: Op) -> None:
    x, index, dim, out = op.args["self"], op.args["index"], normalize_dim(op.args["self"], op.args["dim"]), result(op)
    require_one_dtype(x, out)
    require(len(index.bound) == len(x.bound), "indices must have the rank of the tensor")
    fits = (n <= size for d, (n, size) in enumerate(zip(index.bound, x.bound, strict=True)) if d != dim)
    require(all(fits), "indices must not exceed the tensor")
    args: dict[str, Any] = {"self": computed(low, x), "dim": dim, "index": _index(low, index, x.bound[dim])}
    if op.kind == "scatter_value":
        args["src"] = low.constant(np.full(index.bound, scalar(low, op.args["value"], dtype_of(x)).data))
    elif op.kind != "gather":
        source = op.args["src"]
        require_one_dtype(x, source)
        fits = (n <= size for n, size in zip(index.bound, source.bound, strict=True))
        require(all(fits), "indices must not exceed the source")
        args["src"] = low.get(source)
    low.emit(f"core.{op.kind.removesuffix('_value')}", low.make(out), **args)


def index_select(low: LoweringContext, op: Op) -> None:
    x, out, dim = op.args["self"], result(op), normalize_dim(op.args["self"], op.args["dim"])
    require_one_dtype(x, out)
    index = low.view(_index(low, op.args["index"], x.bound[dim]), out.bound[dim : dim + 1])
    low.emit("core.index_select", low.make(out), self=computed(low, x), dim=dim, index=index)


# ------------------------------------------------------------------------------------------------- index and index_put


def _indexed(low: LoweringContext, x: Value, indices: Sequence[Value | None]) -> tuple[Value, int, Value]:
    """The data, the dimension and the index of indexing: index tensors of adjacent dimensions become one linear index
    over those dimensions, viewed as one."""
    present = [(d, i) for d, i in enumerate(indices) if i is not None]
    require(present and present[-1][0] < len(x.bound), "must index dimensions of the tensor")
    first, last = present[0][0], present[-1][0]
    if len(present) == 1:
        return low.get(x), first, _index(low, present[0][1], x.bound[first], wrap=True)
    require(last - first == len(present) - 1, "must index adjacent dimensions")
    linear: Value | None = None
    for dim, value in present:
        size = x.bound[dim]
        index = _normalize_indices(low, _index(low, value, size, wrap=True), size)
        if linear is None:
            linear = index
        else:
            base = low.compute("core.mul", linear.bound, I64, self=linear, other=scalar(low, size, I64))
            both = np.broadcast_shapes(linear.bound, index.bound)
            linear = low.compute("core.add", both, I64, self=base, other=index)
    assert linear is not None
    sizes = (*x.bound[:first], math.prod(x.bound[first : last + 1]), *x.bound[last + 1 :])
    return low.view(computed(low, x), sizes), first, linear


def _normalize_indices(low: LoweringContext, index: Value, size: int) -> Value:
    """Indices as int64, with negative ones counted from the end."""
    if index.data is not None:
        return low.constant(np.asarray(index.data.astype(np.int64) % size))
    index = cast_value(low, index, I64)
    negative = low.compute("core.lt", index.bound, BOOL, self=index, other=scalar(low, 0, I64))
    wrapped = low.compute("core.add", index.bound, I64, self=index, other=scalar(low, size, I64))
    return low.compute("core.where", index.bound, I64, condition=negative, self=wrapped, other=index)


def _at(dim: int, index: Value) -> list[Value | None]:
    return [index if d == dim else None for d in range(dim + 1)]


def index_tensors(low: LoweringContext, op: Op) -> None:
    out = result(op)
    require_one_dtype(op.args["self"], out)
    data, dim, index = _indexed(low, op.args["self"], op.args["indices"])
    low.emit("core.index", low.make(out), self=data, indices=_at(dim, index))


def index_put(low: LoweringContext, op: Op) -> None:
    x, values, indices, out = op.args["self"], op.args["values"], op.args["indices"], result(op)
    require_one_dtype(x, values, out)
    if _is_mask(indices, x):
        require(math.prod(values.bound) == 1, "must fill with one value")
        mask = low.view(low.get(indices[0]), (*indices[0].bound, *(1,) * (len(x.bound) - len(indices[0].bound))))
        fill = low.view(low.get(values), ())
        low.emit("core.where", low.make(out), condition=mask, self=fill, other=computed(low, x))
        return
    data, dim, index = _indexed(low, x, indices)
    shape, rows = (*data.bound[:dim], *index.bound, *data.bound[dim + 1 :]), low.get(values)
    missing = len(shape) - len(rows.bound)
    if rows.bound != shape[missing:] or any(n != 1 for n in shape[:missing]):  # leading dimensions of 1 may be missing
        require(missing >= 0, "must broadcast to the indexed rows")
        rows = low.compute("core.expand", shape, x.dtype, self=rows, size=list(shape))
    args = {"self": data, "indices": _at(dim, index), "values": rows, "accumulate": False}
    if data.bound == out.bound:
        low.emit("core.index_put", low.make(out), **args)
    else:
        store(low, low.compute("core.index_put", data.bound, x.dtype, **args), out)


def _is_mask(indices: Sequence[Value | None], x: Value) -> bool:
    mask = indices[0] if len(indices) == 1 else None
    return mask is not None and mask.dtype == BOOL and bool(mask.bound) and mask.bound == x.bound[: len(mask.bound)]


# ----------------------------------------------------------------------------------------------------------- embedding


def embedding(low: LoweringContext, op: Op) -> None:
    table, out = op.args["weight"], result(op)
    require_one_dtype(table, out)
    index = _index(low, op.args["indices"], table.bound[0])
    low.emit("core.embedding", low.make(out), weight=low.get(table), indices=index)


_BITS = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}
_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}  # bit offsets of a byte's elements


def quantized_embedding(low: LoweringContext, op: Op) -> None:
    table, scales, zeros, out = (*(op.args[n] for n in ("weight", "weight_scales", "weight_zero_points")), result(op))
    bits, groups = _BITS[op.kind], scales.bound[1] if len(scales.bound) == 2 else 1
    require(scales.bound[:1] == table.bound[:1] and len(scales.bound) in (1, 2), "must have scales for each row")
    require(zeros is None or zeros.bound == scales.bound, "must have a zero point for each scale")
    require(out.bound[-1] % groups == 0, "groups must divide a row")
    count = math.prod(op.args["indices"].bound)
    flat = low.view(_index(low, op.args["indices"], table.bound[0]), (count,))
    rows = _unpack(low, _gather_rows(low, low.get(table), flat), bits)
    data = low.view(rows, (count, groups, out.bound[-1] // groups))
    for kind, params in (("core.sub", zeros), ("core.mul", scales)):
        if params is not None:
            gathered = _gather_rows(low, low.view(low.get(params), (params.bound[0], groups)), flat)
            data = float_node(low, kind, data, low.view(cast_value(low, gathered, F32), (count, groups, 1)))
    store(low, data, out)


def _gather_rows(low: LoweringContext, table: Value, index: Value) -> Value:
    return low.compute("core.index", (index.bound[0], *table.bound[1:]), table.dtype, self=table, indices=[index])


def _unpack(low: LoweringContext, rows: Value, bits: int) -> Value:
    """Unpack sub-byte elements to float32."""
    if bits == 8:
        return cast_value(low, rows, F32)
    rows, parts = cast_value(low, rows, _U8), []
    for shift in _SHIFTS[bits]:
        shifted = low.compute("core.bitwise_right_shift", rows.bound, _U8, self=rows, other=scalar(low, shift, _U8))
        mask = scalar(low, 2**bits - 1, _U8)
        part = low.compute("core.bitwise_and", rows.bound, _U8, self=shifted, other=mask)
        parts.append(low.view(part, (*rows.bound, 1)))
    shape = (*rows.bound, len(parts))
    interleaved = low.compute("core.cat", shape, _U8, tensors=parts, dim=len(shape) - 1)
    flat = low.view(interleaved, (rows.bound[0], rows.bound[1] * len(parts)))
    return float_node(low, "core.sub", cast_value(low, flat, F32), float(2 ** (bits - 1)))


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("gather", "scatter", "scatter_value", "scatter_add"), gather_scatter),
    "index_select": index_select, "index": index_tensors, "index_put": index_put, "embedding": embedding,
    **dict.fromkeys(_BITS, quantized_embedding),
}  # fmt: skip
