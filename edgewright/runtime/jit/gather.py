"""Kernel calls that read and write at places other tensors name, as operators of a device graph.

Places come from outside the segment: whoever runs it looks at them first (``Maker.guards``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import Maker
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot

_WHOLE = (np.dtype(np.int64), np.dtype(np.int32))


_KEPT = ("view", "cast", "clone", "permute", "slice", "expand")  # what leaves places as they are


def given(m: Maker, slot: Any, size: int, *, wrap: bool) -> Value | None:
    """A tensor of places in a dimension of ``size``: one that the file holds, that the segment made of no more, or from
    outside the segment, to be looked at before each run."""
    if not isinstance(slot, TensorSlot) or slot.dtype not in _WHOLE or slot.dynamic or 0 in slot.bound or not size:
        return None
    data = m.constant(slot)
    if data is not None:
        inside = int(data.max()) < size and int(data.min()) >= (-size if wrap else 0)
        return m.planes(slot) if inside else None
    if m.is_made(slot) and slot not in m.given:
        return m.planes(slot) if _most(m, m.planes(slot)) <= size else None
    m.guards.add((slot, size, wrap))
    return m.planes(slot)


def _most(m: Maker, value: Value) -> float:
    """Places that the segment made are below this."""
    op = m.makers.get(value)
    while op is not None and op.kind in _KEPT:
        value = op.args["self"]
        op = m.makers.get(value)
    if op is None or op.kind not in ("argmax", "argmin", "topk_places"):
        return math.inf
    shape, dim = op.args["self"].bound, op.args["dim"]
    return math.prod(shape) if dim is None else int(shape[dim])


def _one_list(m: Maker, x: TensorSlot, indices: Sequence[Any]) -> list[Value | None] | None:
    """The places of an operator on one dimension; None if it is on several, or not by numbers."""
    named = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(named) != 1 or named[0][0] >= len(x.bound):
        return None
    dim, slot = named[0]
    at = given(m, slot, x.bound[dim], wrap=True)
    return None if at is None else [at if d == dim else None for d in range(len(indices))]


@taken("aten::embedding.out")
def _embedding(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    table, indices = a["weight"], a["indices"]
    if not m.alike(table, *outs) or len(table.bound) != 2:
        return False
    at = given(m, indices, table.bound[0], wrap=False)
    if at is None:
        return False
    more = {name: a[name] for name in ("padding_idx", "scale_grad_by_freq", "sparse")}
    m.add("embedding", outs[0], {"weight": m.planes(table), "indices": at, **more})
    return True


@taken("aten::index.Tensor_out")
def _index(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    at = _one_list(m, x, a["indices"]) if m.alike(x, *outs) else None
    if at is None:
        return False
    m.add("index", outs[0], {"self": m.planes(x), "indices": at})
    return True


@taken("aten::index_put.out")
def _index_put(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, values = a["self"], a["values"]
    fits = m.alike(x, values, *outs) and not a["accumulate"]
    at = _one_list(m, x, a["indices"]) if fits else None
    if at is None or not _covers(x, at, values):
        return False
    dim, places = next((d, v) for d, v in enumerate(at) if v is not None)
    put(m, x, dim, places, m.planes(values), outs[0])
    return True


def put(m: Maker, x: TensorSlot, dim: int, places: Value, values: Value, out: TensorSlot) -> None:
    """Rows of ``x`` are written over; the result is ``out``."""
    indices = [places if d == dim else None for d in range(dim + 1)]
    m.add("index_put", out, {"self": m.planes(x), "indices": indices, "values": values, "accumulate": False})


def _covers(x: TensorSlot, at: Sequence[Value | None], values: TensorSlot) -> bool:
    """Whether there is a value for each place, but for dimensions of 1 that are left out."""
    dim = next(d for d, v in enumerate(at) if v is not None)
    named = at[dim]
    assert named is not None
    shape = (*x.bound[:dim], *named.bound, *x.bound[dim + 1 :])
    more = len(shape) - len(values.bound)
    return more >= 0 and shape[more:] == values.bound and all(n == 1 for n in shape[:more])


@taken("aten::split_copy.Tensor_out", "aten::split_with_sizes_copy.out", "aten::unbind_copy.int_out")
def _split(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not m.alike(x, *outs) or not m.is_made(x) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim, start, unbound = a["dim"] % rank, 0, "unbind" in a["key"]
    sizes = [1 if unbound or len(o.bound) != rank else o.bound[dim] for o in outs]
    if sum(sizes) != x.bound[dim]:
        return False
    for out, size in zip(outs, sizes, strict=True):
        starts = [start if d == dim else 0 for d in range(rank)]
        lengths = [size if d == dim else n for d, n in enumerate(x.bound)]
        args = {"self": m.planes(x), "start": starts, "length": lengths}
        if unbound:
            m.add("view", out, {"self": m.between("slice", lengths, args, x.dtype), "size": list(out.bound)})
        else:
            m.add("slice", out, args)
        start += size
    return True
