"""Lowering of data movement. Such calls extend a segment, and never start one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgewright.runtime.jit.graph_builder import GraphBuilder, make_value
from edgewright.runtime.jit.registry import Args, lowers
from edgewright.runtime.tensor import TensorSlot


def _extends_segment(g: GraphBuilder, x: TensorSlot, outs: Sequence[TensorSlot]) -> bool:
    return g.supports_same_dtype(x, *outs) and (g.is_bound(x) or bool(g.graph.ops)) and g.constant_data(x) is None


def _emit_permute(g: GraphBuilder, x: TensorSlot, outs: Sequence[TensorSlot], dims: list[int]) -> bool:
    if sorted(dims) != list(range(len(x.bound))):
        return False
    g.emit_to("core.permute", outs[0], {"self": g.value(x), "dims": dims})
    return True


def lower_permute(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Permute a value that the segment computes."""
    x, rank = a["self"], len(a["self"].bound)
    dims = [int(d) + (rank if d < 0 else 0) for d in a.get("dims", range(rank)[::-1])]
    return _extends_segment(g, x, outs) and _emit_permute(g, x, outs, dims)


@lowers("aten::transpose_copy.int_out")
def _transpose(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not _extends_segment(g, x, outs) or not all(-rank <= a[n] < rank for n in ("dim0", "dim1")):
        return False
    dims = list(range(rank))
    first, second = a["dim0"] % rank, a["dim1"] % rank
    dims[first], dims[second] = second, first
    return _emit_permute(g, x, outs, dims)


@lowers("aten::unsqueeze_copy.out", "aten::squeeze_copy.dims_out", "aten::squeeze_copy.dim_out")
def _reshape(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not _extends_segment(g, x, outs) or math.prod(x.bound) != math.prod(outs[0].bound):
        return False
    g.emit_to("core.view", outs[0], {"self": g.value(x), "size": list(outs[0].bound)})
    return True


def _slice_args(g: GraphBuilder, x: TensorSlot, dim: int, start: int, length: int) -> dict[str, Any]:
    starts = [start if d == dim else 0 for d in range(len(x.bound))]
    lengths = [length if d == dim else n for d, n in enumerate(x.bound)]
    return {"self": g.value(x), "start": starts, "length": lengths}


@lowers("aten::slice_copy.Tensor_out")
def lower_slice(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """A slice of one dimension."""
    x, rank = a["self"], len(a["self"].bound)
    if not _extends_segment(g, x, outs) or not rank or not -rank <= a["dim"] < rank or a["step"] != 1:
        return False
    dim = a["dim"] % rank
    start, end, _ = slice(a["start"], a["end"]).indices(x.bound[dim])
    if end <= start:
        return False
    g.emit_to("core.slice", outs[0], _slice_args(g, x, dim, start, end - start))
    return True


@lowers("aten::select_copy.int_out")
def _select(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x, rank = a["self"], len(a["self"].bound)
    if not _extends_segment(g, x, outs) or not rank or not -rank <= a["dim"] < rank:
        return False
    dim = a["dim"] % rank
    size = x.bound[dim]
    if not -size <= a["index"] < size:
        return False
    args = _slice_args(g, x, dim, a["index"] % size, 1)
    part = g.emit_core("core.slice", args["length"], args, x.dtype)
    g.emit_to("core.view", outs[0], {"self": part, "size": list(outs[0].bound)})
    return math.prod(part.bound) == math.prod(outs[0].bound)


@lowers("aten::expand_copy.out")
def _expand(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not _extends_segment(g, x, outs):
        return False
    g.emit_to("core.expand", outs[0], {"self": g.value(x), "size": list(outs[0].bound), "implicit": False})
    return True


@lowers("aten::cat.out")
def _cat(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    operands, rank = list(a["tensors"]), len(outs[0].bound)
    if not all(isinstance(x, TensorSlot) for x in operands) or not g.supports_same_dtype(*operands, *outs):
        return False
    if (
        not -rank <= a["dim"] < rank
        or any(len(x.bound) != rank for x in operands)
        or not any(map(g.is_bound, operands))
    ):
        return False
    g.emit_to("core.cat", outs[0], {"tensors": [g.value(x) for x in operands], "dim": a["dim"] % rank})
    return True


@lowers("aten::stack.out")
def _stack(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    operands, rank = list(a["tensors"]), len(outs[0].bound)
    if (
        not operands
        or not all(isinstance(x, TensorSlot) for x in operands)
        or not g.supports_same_dtype(*operands, *outs)
    ):
        return False
    same_shape = all(x.bound == operands[0].bound and len(x.bound) == rank - 1 for x in operands)
    if not same_shape or not -rank <= a["dim"] < rank or not any(map(g.is_bound, operands)):
        return False
    dim = a["dim"] % rank
    size = [*operands[0].bound[:dim], 1, *operands[0].bound[dim:]]
    parts = [g.emit_core("core.view", size, {"self": g.value(x), "size": size}, x.dtype) for x in operands]
    g.emit_to("core.cat", outs[0], {"tensors": parts, "dim": dim})
    return True


@lowers("aten::permute_copy.out", "aten::t_copy.out")
def _permute_or_fold(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    """Transpose a constant (the weights of a product) at load; anything else is a permute."""
    data = g.constant_data(a["self"])
    if data is None:
        return lower_permute(g, a, outs)
    if not g.supports_float(a["self"], *outs) or data.ndim > 2:
        return False
    dims = [int(d) + (data.ndim if d < 0 else 0) for d in a.get("dims", range(data.ndim)[::-1])]
    if sorted(dims) != list(range(data.ndim)):
        return False
    transposed = g.transpose_constant(data, tuple(dims))
    if transposed.shape != outs[0].bound:
        return False
    g.bind(outs[0], make_value(transposed.shape, transposed), nhwc=False)
    return True


@lowers("aten::view_copy.out")
def _view(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if not g.supports_same_dtype(x, *outs) or not g.is_bound(x) or g.constant_data(x) is not None:
        return False
    if math.prod(x.bound) != math.prod(outs[0].bound):
        return False
    g.emit_to("core.view", outs[0], {"self": g.value(x), "size": list(outs[0].bound)})
    return True


@lowers("dim_order_ops::_clone_dim_order.out", "aten::clone.out")
def _clone(g: GraphBuilder, a: Args, outs: Sequence[TensorSlot]) -> bool:
    x = a["self"]
    if (
        not g.supports_float(x, *outs)
        or not g.is_bound(x)
        or g.constant_data(x) is not None
        or x.bound != outs[0].bound
    ):
        return False
    nhwc = g.prefers_nhwc([x])
    g.bind(outs[0], g.value_nhwc(x) if nhwc else g.value(x), nhwc=nhwc)
    return True
