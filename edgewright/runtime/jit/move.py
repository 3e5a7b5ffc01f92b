"""Kernel calls that only move elements, as operators of a device graph. They join a segment, and never start one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgewright.runtime.jit.graph_builder import Maker, new
from edgewright.runtime.jit.registry import Args, taken
from edgewright.runtime.tensor import TensorSlot


def _follows(m: Maker, x: TensorSlot, outs: Sequence[TensorSlot]) -> bool:
    return m.alike(x, *outs) and (m.is_made(x) or bool(m.graph.ops)) and m.constant(x) is None


def _permuted(m: Maker, x: TensorSlot, outs: Sequence[TensorSlot], dims: list[int]) -> bool:
    if sorted(dims) != list(range(len(x.bound))):
        return False
    m.add("permute", outs[0], {"self": m.planes(x), "dims": dims})
    return True


def permute(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Of what the segment has made."""
    x, rank = a["self"], len(a["self"].bound)
    dims = [int(d) + (rank if d < 0 else 0) for d in a.get("dims", range(rank)[::-1])]
    return _follows(m, x, outs) and _permuted(m, x, outs, dims)


@taken("aten::transpose_copy.int_out")
def _transpose(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not _follows(m, x, outs) or not all(-rank <= a[n] < rank for n in ("dim0", "dim1")):
        return False
    dims = list(range(rank))
    first, second = a["dim0"] % rank, a["dim1"] % rank
    dims[first], dims[second] = second, first
    return _permuted(m, x, outs, dims)


@taken("aten::unsqueeze_copy.out", "aten::squeeze_copy.dims_out", "aten::squeeze_copy.dim_out")
def _reshaped(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not _follows(m, x, outs) or math.prod(x.bound) != math.prod(outs[0].bound):
        return False
    m.add("view", outs[0], {"self": m.planes(x), "size": list(outs[0].bound)})
    return True


def _slice(m: Maker, x: TensorSlot, dim: int, start: int, length: int) -> dict[str, Any]:
    starts = [start if d == dim else 0 for d in range(len(x.bound))]
    lengths = [length if d == dim else n for d, n in enumerate(x.bound)]
    return {"self": m.planes(x), "start": starts, "length": lengths}


@taken("aten::slice_copy.Tensor_out")
def sliced(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A part of one dimension."""
    x, rank = a["self"], len(a["self"].bound)
    if not _follows(m, x, outs) or not rank or not -rank <= a["dim"] < rank or a["step"] != 1:
        return False
    dim = a["dim"] % rank
    start, end, _ = slice(a["start"], a["end"]).indices(x.bound[dim])
    if end <= start:
        return False
    m.add("slice", outs[0], _slice(m, x, dim, start, end - start))
    return True


@taken("aten::select_copy.int_out")
def _selected(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not _follows(m, x, outs) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim = a["dim"] % rank
    size = x.bound[dim]
    if not -size <= a["index"] < size:
        return False
    args = _slice(m, x, dim, a["index"] % size, 1)
    part = m.between("slice", args["length"], args, x.dtype)
    m.add("view", outs[0], {"self": part, "size": list(outs[0].bound)})
    return math.prod(part.bound) == math.prod(outs[0].bound)


@taken("aten::expand_copy.out")
def _expanded(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not _follows(m, x, outs):
        return False
    m.add("expand", outs[0], {"self": m.planes(x), "size": list(outs[0].bound), "implicit": False})
    return True


@taken("aten::cat.out")
def _joined(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    given, rank = list(a["tensors"]), len(outs[0].bound)
    if not all(isinstance(x, TensorSlot) for x in given) or not m.alike(*given, *outs):
        return False
    if not -rank <= a["dim"] < rank or any(len(x.bound) != rank for x in given) or not any(map(m.is_made, given)):
        return False
    m.add("cat", outs[0], {"tensors": [m.planes(x) for x in given], "dim": a["dim"] % rank})
    return True


@taken("aten::stack.out")
def _stacked(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    given, rank = list(a["tensors"]), len(outs[0].bound)
    if not given or not all(isinstance(x, TensorSlot) for x in given) or not m.alike(*given, *outs):
        return False
    alike = all(x.bound == given[0].bound and len(x.bound) == rank - 1 for x in given)
    if not alike or not -rank <= a["dim"] < rank or not any(map(m.is_made, given)):
        return False
    dim = a["dim"] % rank
    size = [*given[0].bound[:dim], 1, *given[0].bound[dim:]]
    parts = [m.between("view", size, {"self": m.planes(x), "size": size}, x.dtype) for x in given]
    m.add("cat", outs[0], {"tensors": parts, "dim": dim})
    return True


@taken("aten::permute_copy.out", "aten::t_copy.out")
def _turned_constant(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Of what is constant, a product's weights, now; else as a move."""
    data = m.constant(a["self"])
    if data is None:
        return permute(m, a, outs)
    if not m.usable(a["self"], *outs) or data.ndim > 2:
        return False
    dims = [int(d) + (data.ndim if d < 0 else 0) for d in a.get("dims", range(data.ndim)[::-1])]
    if sorted(dims) != list(range(data.ndim)):
        return False
    turned = m.turn(data, dims)
    if turned.shape != outs[0].bound:
        return False
    m.bind(outs[0], new(turned.shape, turned), pixels=False)
    return True


@taken("aten::view_copy.out")
def _view(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not m.alike(x, *outs) or not m.is_made(x) or m.constant(x) is not None:
        return False
    if math.prod(x.bound) != math.prod(outs[0].bound):
        return False
    m.add("view", outs[0], {"self": m.planes(x), "size": list(outs[0].bound)})
    return True


@taken("dim_order_ops::_clone_dim_order.out", "aten::clone.out")
def _clone(m: Maker, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not m.usable(x, *outs) or not m.is_made(x) or m.constant(x) is not None or x.bound != outs[0].bound:
        return False
    pixels = m.like([x])
    m.bind(outs[0], m.pixels(x) if pixels else m.planes(x), pixels=pixels)
    return True
