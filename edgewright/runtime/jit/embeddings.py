"""Lowering of embeddings with 8-, 4- or 2-bit tables: gathers rows first, then dequantizes only those."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.composites import emit_float, store
from edgewright.runtime.jit.gather import lower_index
from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot

_F32, _U8 = np.dtype(np.float32), np.dtype(np.uint8)
_BITS = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}
_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}  # bit offsets of a byte's elements


@lowers(*(f"quantized_decomposed::{name}.{overload}" for name in _BITS for overload in ("out", "dtype_out")))
def _embedding(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    table, scales, zeros, indices, out = a["weight"], a["weight_scales"], a["weight_zero_points"], a["indices"], outs[0]
    bits = _BITS[a["key"].partition("::")[2].partition(".")[0]]
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
    for kind, slot in (("sub", zeros), ("mul", scales)):
        if slot is not None:
            params = _gather_rows(g, g.view(g.value(slot), (slot.bound[0], groups)), flat)
            params = params if params.dtype == _F32 else g.emit("cast", params.bound, {"self": params}, _F32)
            data = emit_float(g, kind, data, g.view(params, (count, groups, 1)))
    g.macs += 4 * math.prod(out.bound)
    return store(g, data, out)


def _gather_rows(g: GraphBuilder, table: Value, index: Value) -> Value:
    shape = (index.bound[0], *table.bound[1:])
    return g.emit("index", shape, {"self": table, "indices": [index]}, table.dtype)


def _unpack(g: GraphBuilder, rows: Value, bits: int) -> Value:
    """Unpack sub-byte elements to float32."""
    if bits == 8:
        return g.emit("cast", rows.bound, {"self": rows}, _F32)
    if rows.dtype != _U8:
        rows = g.emit("cast", rows.bound, {"self": rows}, _U8)
    shape_1, parts = (*rows.bound, 1), []
    for shift in _SHIFTS[bits]:
        args = {"self": rows, "other": make_value((), np.asarray(shift, np.uint8))}
        shifted = g.emit("bitwise_right_shift", rows.bound, args, _U8)
        args = {"self": shifted, "other": make_value((), np.asarray(2**bits - 1, np.uint8))}
        parts.append(g.view(g.emit("bitwise_and", rows.bound, args, _U8), shape_1))
    shape = (*rows.bound, len(parts))
    interleaved = g.emit("cat", shape, {"tensors": parts, "dim": len(shape) - 1}, _U8)
    flat = g.view(interleaved, (rows.bound[0], rows.bound[1] * len(parts)))
    return emit_float(g, "sub", g.emit("cast", flat.bound, {"self": flat}, _F32), float(2 ** (bits - 1)))
