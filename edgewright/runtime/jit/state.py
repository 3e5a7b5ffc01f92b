"""Kernel calls that write to state, as operators of a device graph: a tensor's new contents are a value of their own.

The engine writes them where the old ones lie, if nothing reads those any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewright.ir.graph import Value
from edgewright.runtime.jit.bind_call import take
from edgewright.runtime.jit.gather import put
from edgewright.runtime.jit.graph_builder import Maker
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot


@taken("aten::copy_")
def _copy(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """What the segment has made becomes the contents of a tensor."""
    target, source = a["self"], a["src"]
    made = m.alike(target, source) and target.bound == source.bound and m.is_made(source)
    if not made or source is target or m.constant(source) is not None:
        return False
    m.bind(target, m.planes(source), pixels=False)
    return True


@taken("aten::index_put_")
def _put_in_place(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    return take(m, {**a, "key": "aten::index_put.out"}, [a["self"]])


@taken("aten::slice_scatter.out", "aten::select_scatter.out")
def _scatter(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Rows at places that the file names."""
    x, values, rank = a["self"], a["src"], len(a["self"].bound)
    if not m.alike(x, values, *outs) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim = a["dim"] % rank
    size = x.bound[dim]
    if "index" in a:
        named = range(size)[a["index"] : a["index"] + 1 or None] if -size <= a["index"] < size else range(0)
    else:
        named = range(size)[slice(a["start"], a["end"], max(a["step"], 1))]
    shape = (*x.bound[:dim], len(named), *x.bound[dim + 1 :])
    rest = (*x.bound[:dim], *x.bound[dim + 1 :]) if "index" in a else shape
    if not named or values.bound != rest or outs[0].bound != x.bound:
        return False
    rows = m.planes(values)
    if values.bound != shape:
        rows = m.between("view", shape, {"self": rows, "size": list(shape)}, x.dtype)
    put(m, x, dim, _constant(np.asarray(named, np.int64)), rows, outs[0])
    return True


def _constant(places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Value:
    return Value("v", places.dtype, places.shape, (0,), places)
