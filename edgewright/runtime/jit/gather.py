"""Lowering of row gather and scatter, embedding, and split.

Indices from outside the segment are unknown at load: ``GraphBuilder.guards`` makes the segment check them before each
run, because the engine's kernels do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot

_INDEX_DTYPES = (np.dtype(np.int64), np.dtype(np.int32))


_RANGE_PRESERVING = ("view", "cast", "clone", "permute", "slice", "expand")  # operators that keep indices in range


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
    data = g.constant(slot)
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
    if op is None or op.kind not in ("argmax", "argmin", "topk_places"):
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
    g.emit_to("embedding", outs[0], {"weight": g.value(table), "indices": index, **attrs})
    return True


@lowers("aten::index.Tensor_out")
def _index(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    index = _single_index(g, x, a["indices"]) if g.supports_same_dtype(x, *outs) else None
    if index is None:
        return False
    g.emit_to("index", outs[0], {"self": g.value(x), "indices": index})
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
    g.emit_to("index_put", out, {"self": g.value(x), "indices": indices, "values": values, "accumulate": False})


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
            g.emit_to("view", out, {"self": g.emit("slice", lengths, args, x.dtype), "size": list(out.bound)})
        else:
            g.emit_to("slice", out, args)
        start += size
    return True
