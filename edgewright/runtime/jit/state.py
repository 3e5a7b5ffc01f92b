"""Lowering of kernel calls that write state: the new contents of a tensor are a new value (SSA form).

The engine writes them over the old ones if nothing reads those any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.bind_call import lower_call
from edgewright.runtime.jit.gather import emit_index_put
from edgewright.runtime.jit.graph_builder import GraphBuilder
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot


@lowers("aten::copy_")
def _copy(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Bind a tensor to a value that the segment computes."""
    target, source = a["self"], a["src"]
    supported = g.supports_same_dtype(target, source) and target.bound == source.bound and g.is_bound(source)
    if not supported or source is target or g.constant_data(source) is not None:
        return False
    g.bind(target, g.value(source), nhwc=False)
    return True


@lowers("aten::index_put_")
def _index_put_in_place(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return lower_call(g, {**a, "key": "aten::index_put.out"}, [a["self"]])


@lowers("aten::slice_scatter.out", "aten::select_scatter.out")
def _scatter(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Static row indices, from the arguments."""
    x, values, rank = a["self"], a["src"], len(a["self"].bound)
    if not g.supports_same_dtype(x, values, *outs) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim = a["dim"] % rank
    size = x.bound[dim]
    if "index" in a:
        positions = range(size)[a["index"] : a["index"] + 1 or None] if -size <= a["index"] < size else range(0)
    else:
        positions = range(size)[slice(a["start"], a["end"], max(a["step"], 1))]
    shape = (*x.bound[:dim], len(positions), *x.bound[dim + 1 :])
    expected = (*x.bound[:dim], *x.bound[dim + 1 :]) if "index" in a else shape
    if not positions or values.bound != expected or outs[0].bound != x.bound:
        return False
    rows = g.value(values)
    if values.bound != shape:
        rows = g.emit_core("core.view", shape, {"self": rows, "size": list(shape)}, x.dtype)
    emit_index_put(g, x, dim, _index_constant(np.asarray(positions, np.int64)), rows, outs[0])
    return True


def _index_constant(index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Value:
    return Value("v", index.dtype, index.shape, (0,), index)
