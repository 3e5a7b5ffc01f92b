"""Lowering of row gather and scatter, embedding, and split. Of 8-, 4- or 2-bit embedding tables, only the gathered rows
are dequantized.

Indices from outside the segment are unknown at load: ``GraphBuilder.guards`` makes the segment check them before each
run, because the engine's kernels do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.composites import emit_float, store
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers, op_name
from edgewright.runtime.tensor import TensorSlot

_INDEX_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))


# Operators that keep indices in range.
_RANGE_PRESERVING = ("core.view", "core.cast", "core.clone", "core.permute", "core.slice", "core.expand")


def lower_index(g: GraphBuilder, slot: Any, size: int, *, wrap: bool) -> Value | None:
    """An index tensor for a dimension of ``size``; None if its range cannot be ensured.

    Constants are checked here, results of argmax and top-k by their bound, and inputs of the segment by a guard.
    """
    if (
        not isinstance(slot, TensorSlot)
        or slot.dtype not in _INDEX_DTYPES
        or slot.dynamic
        or 0 in slot.bound
        or not size
    ):
        return None
    data = g.constant_data(slot)
    if data is not None:
        in_range = int(data.max()) < size and int(data.min()) >= (-size if wrap else 0)
        return g.value(slot) if in_range else None
    if g.is_bound(slot) and slot not in g.input_slots:
        return g.value(slot) if _upper_bound(g, g.value(slot)) <= size else None
    g.guards.add((slot, size, wrap))
    return g.value(slot)


def _upper_bound(g: GraphBuilder, value: Value) -> float:
    """Exclusive upper bound of the indices that the segment computes."""
    op = g.producers.get(value)
    while op is not None and op.kind in _RANGE_PRESERVING:
        value = op.args["self"]
        op = g.producers.get(value)
    if op is None or op.kind not in ("core.argmax", "core.argmin", "core.topk_indices"):
        return math.inf
    shape, dim = op.args["self"].bound, op.args["dim"]
    return math.prod(shape) if dim is None else int(shape[dim])


def _single_index(g: GraphBuilder, x: TensorSlot, indices: Sequence[Any]) -> list[Value | None] | None:
    """The index arguments if exactly one dimension is indexed by integers; else None."""
    present = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(present) != 1 or present[0][0] >= len(x.bound):
        return None
    dim, slot = present[0]
    index = lower_index(g, slot, x.bound[dim], wrap=True)
    return None if index is None else [index if d == dim else None for d in range(len(indices))]


@lowers("aten::embedding.out")
def _embedding(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    table, indices = a["weight"], a["indices"]
    if not g.supports_same_dtype(table, *outs) or len(table.bound) != 2:
        return False
    index = lower_index(g, indices, table.bound[0], wrap=False)
    if index is None:
        return False
    attrs = {name: a[name] for name in ("padding_idx", "scale_grad_by_freq", "sparse")}
    g.emit_to("core.embedding", outs[0], {"weight": g.value(table), "indices": index, **attrs})
    return True


@lowers("aten::index.Tensor_out")
def _index(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    index = _single_index(g, x, a["indices"]) if g.supports_same_dtype(x, *outs) else None
    if index is None:
        return False
    g.emit_to("core.index", outs[0], {"self": g.value(x), "indices": index})
    return True


@lowers("aten::index_put.out")
def _index_put(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, values = a["self"], a["values"]
    fits = g.supports_same_dtype(x, values, *outs) and not a["accumulate"]
    index = _single_index(g, x, a["indices"]) if fits else None
    if index is None or not _values_fit(x, index, values):
        return False
    dim, rows = next((d, v) for d, v in enumerate(index) if v is not None)
    emit_index_put(g, x, dim, rows, g.value(values), outs[0])
    return True


def emit_index_put(g: GraphBuilder, x: TensorSlot, dim: int, index: Value, values: Value, out: TensorSlot) -> None:
    """``out`` is ``x`` with the rows at ``index`` along ``dim`` replaced by ``values``."""
    indices = [index if d == dim else None for d in range(dim + 1)]
    g.emit_to("core.index_put", out, {"self": g.value(x), "indices": indices, "values": values, "accumulate": False})


def _values_fit(x: TensorSlot, index: Sequence[Value | None], values: TensorSlot) -> bool:
    """Whether ``values`` has the shape of the indexed rows, up to leading dimensions of 1."""
    dim = next(d for d, v in enumerate(index) if v is not None)
    rows = index[dim]
    assert rows is not None
    shape = (*x.bound[:dim], *rows.bound, *x.bound[dim + 1 :])
    missing = len(shape) - len(values.bound)
    return missing >= 0 and shape[missing:] == values.bound and all(n == 1 for n in shape[:missing])


@lowers("aten::split_copy.Tensor_out", "aten::split_with_sizes_copy.out", "aten::unbind_copy.int_out")
def _split(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not g.supports_same_dtype(x, *outs) or not g.is_bound(x) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim, start, unbound = a["dim"] % rank, 0, "unbind" in a["key"]
    sizes = [1 if unbound or len(o.bound) != rank else o.bound[dim] for o in outs]
    if sum(sizes) != x.bound[dim]:
        return False
    for out, size in zip(outs, sizes, strict=True):
        starts = [start if d == dim else 0 for d in range(rank)]
        lengths = [size if d == dim else n for d, n in enumerate(x.bound)]
        args = {"self": g.value(x), "start": starts, "length": lengths}
        if unbound:
            g.emit_to(
                "core.view", out, {"self": g.emit_core("core.slice", lengths, args, x.dtype), "size": list(out.bound)}
            )
        else:
            g.emit_to("core.slice", out, args)
        start += size
    return True


_F32, _U8 = np.dtype(np.float32), np.dtype(np.uint8)
_BITS = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}
_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}  # bit offsets of a byte's elements


@lowers(*(f"quantized_decomposed::{name}.{overload}" for name in _BITS for overload in ("out", "dtype_out")))
def _quantized_embedding(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    table, scales, zeros, indices, out = a["weight"], a["weight_scales"], a["weight_zero_points"], a["indices"], outs[0]
    bits = _BITS[op_name(a)]
    fits = len(table.bound) == 2 and len(scales.bound) in (1, 2) and scales.bound[:1] == table.bound[:1]
    if not g.supports(table, scales, zeros, out) or not fits or (zeros is not None and zeros.bound != scales.bound):
        return False
    index = lower_index(g, indices, table.bound[0], wrap=False)
    groups = scales.bound[1] if len(scales.bound) == 2 else 1
    if index is None or out.bound[-1:] != (table.bound[1] * (8 // bits),) or out.bound[-1] % groups:
        return False
    count = math.prod(indices.bound)
    flat = g.view(index, (count,))
    rows = _unpack(g, _gather_rows(g, g.value(table), flat), bits)
    data = g.view(rows, (count, groups, out.bound[-1] // groups))
    for kind, slot in (("core.sub", zeros), ("core.mul", scales)):
        if slot is not None:
            params = _gather_rows(g, g.view(g.value(slot), (slot.bound[0], groups)), flat)
            params = params if params.dtype == _F32 else g.emit_core("core.cast", params.bound, {"self": params}, _F32)
            data = emit_float(g, kind, data, g.view(params, (count, groups, 1)))
    g.macs += 4 * math.prod(out.bound)
    return store(g, data, out)


def _gather_rows(g: GraphBuilder, table: Value, index: Value) -> Value:
    shape = (index.bound[0], *table.bound[1:])
    return g.emit_core("core.index", shape, {"self": table, "indices": [index]}, table.dtype)


def _unpack(g: GraphBuilder, rows: Value, bits: int) -> Value:
    """Unpack sub-byte elements to float32."""
    if bits == 8:
        return g.emit_core("core.cast", rows.bound, {"self": rows}, _F32)
    if rows.dtype != _U8:
        rows = g.emit_core("core.cast", rows.bound, {"self": rows}, _U8)
    shape_1, parts = (*rows.bound, 1), []
    for shift in _SHIFTS[bits]:
        args = {"self": rows, "other": make_value((), np.asarray(shift, np.uint8))}
        shifted = g.emit_core("core.bitwise_right_shift", rows.bound, args, _U8)
        args = {"self": shifted, "other": make_value((), np.asarray(2**bits - 1, np.uint8))}
        parts.append(g.view(g.emit_core("core.bitwise_and", rows.bound, args, _U8), shape_1))
    shape = (*rows.bound, len(parts))
    interleaved = g.emit_core("core.cat", shape, {"tensors": parts, "dim": len(shape) - 1}, _U8)
    flat = g.view(interleaved, (rows.bound[0], rows.bound[1] * len(parts)))
    return emit_float(g, "core.sub", g.emit_core("core.cast", flat.bound, {"self": flat}, _F32), float(2 ** (bits - 1)))
