"""Rows of tables whose numbers are quantized to 8, 4 or 2 bits: rows are picked first, and only those made real."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.composites import real, stored
from edgewright.runtime.jit.gather import given
from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot

_F32, _BYTE = np.dtype(np.float32), np.dtype(np.uint8)
_BITS = {"embedding_byte": 8, "embedding_4bit": 4, "embedding_2bit": 2}
_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}  # where in a byte its numbers are


@taken(*(f"quantized_decomposed::{name}.{way}" for name in _BITS for way in ("out", "dtype_out")))
def _embedding(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    table, scales, zeros, indices, out = a["weight"], a["weight_scales"], a["weight_zero_points"], a["indices"], outs[0]
    bits = _BITS[a["key"].partition("::")[2].partition(".")[0]]
    fits = len(table.bound) == 2 and len(scales.bound) in (1, 2) and scales.bound[:1] == table.bound[:1]
    if not m.known(table, scales, zeros, out) or not fits or (zeros is not None and zeros.bound != scales.bound):
        return False
    places = given(m, indices, table.bound[0], wrap=False)
    groups = scales.bound[1] if len(scales.bound) == 2 else 1
    if places is None or out.bound[-1:] != (table.bound[1] * (8 // bits),) or out.bound[-1] % groups:
        return False
    count = math.prod(indices.bound)
    flat = m.viewed(places, (count,))
    rows = _unpacked(m, _picked(m, m.planes(table), flat), bits)
    data = m.viewed(rows, (count, groups, out.bound[-1] // groups))
    for kind, slot in (("sub", zeros), ("mul", scales)):
        if slot is not None:
            held = _picked(m, m.viewed(m.planes(slot), (slot.bound[0], groups)), flat)
            held = held if held.dtype == _F32 else m.between("cast", held.bound, {"self": held}, _F32)
            data = real(m, kind, data, m.viewed(held, (count, groups, 1)))
    m.macs += 4 * math.prod(out.bound)
    return stored(m, data, out)


def _picked(m: Maker, table: Value, places: Value) -> Value:
    shape = (places.bound[0], *table.bound[1:])
    return m.between("index", shape, {"self": table, "indices": [places]}, table.dtype)


def _unpacked(m: Maker, rows: Value, bits: int) -> Value:
    """Reals from bytes that hold several numbers each."""
    if bits == 8:
        return m.between("cast", rows.bound, {"self": rows}, _F32)
    if rows.dtype != _BYTE:
        rows = m.between("cast", rows.bound, {"self": rows}, _BYTE)
    wide, parts = (*rows.bound, 1), []
    for shift in _SHIFTS[bits]:
        args = {"self": rows, "other": new((), np.asarray(shift, np.uint8))}
        moved = m.between("bitwise_right_shift", rows.bound, args, _BYTE)
        args = {"self": moved, "other": new((), np.asarray(2**bits - 1, np.uint8))}
        parts.append(m.viewed(m.between("bitwise_and", rows.bound, args, _BYTE), wide))
    shape = (*rows.bound, len(parts))
    both = m.between("cat", shape, {"tensors": parts, "dim": len(shape) - 1}, _BYTE)
    flat = m.viewed(both, (rows.bound[0], rows.bound[1] * len(parts)))
    return real(m, "sub", m.between("cast", flat.bound, {"self": flat}, _F32), float(2 ** (bits - 1)))
