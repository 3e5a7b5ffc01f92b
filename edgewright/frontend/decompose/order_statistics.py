"""Decompositions of norms, order statistics, scans (cumulative operators), histograms and convenience operators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import dtype_of, rank_of, rule, to_dtype
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


@rule(aten.linalg_vector_norm.default)
def vector_norm(
    rw: Rewriter, x: fx.Node, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = to_dtype(rw, x, dtype)
    dims = list(range(rank_of(x))) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if order == 2:
        return rw.call(aten.sqrt.default, rw.call(aten.sum.dim_IntList, rw.call(aten.mul.Tensor, x, x), dims, keepdim))
    size = rw.call(aten.abs.default, x)
    if math.isinf(order):
        return rw.call(aten.amax.default if order > 0 else aten.amin.default, size, dims, keepdim)
    if order == 0:
        return rw.call(aten.sum.dim_IntList, to_dtype(rw, rw.call(aten.ne.Scalar, x, 0), dtype_of(x)), dims, keepdim)
    if order == 1:
        return rw.call(aten.sum.dim_IntList, size, dims, keepdim)
    total = rw.call(aten.sum.dim_IntList, rw.call(aten.pow.Tensor_Scalar, size, order), dims, keepdim)
    return rw.call(aten.pow.Tensor_Scalar, total, 1 / order)


@rule(aten.kthvalue.default)
def kthvalue(rw: Rewriter, x: fx.Node, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The last element of the k smallest, in order."""
    if not rank_of(x):
        return kthvalue(rw, rw.call(aten.view.default, x, [1]), k, 0)
    smallest = rw.call(aten.topk.default, x, k, dim, False, True)
    last = [rw.call(aten.slice.Tensor, f, dim, k - 1, k, 1) for f in smallest]
    return last if keepdim else [rw.call(aten.squeeze.dim, part, dim) for part in last]


@rule(aten.median.dim)
def median(rw: Rewriter, x: fx.Node, dim: int, keepdim: bool = False) -> Any:
    size = rw.size(x, dim) if rank_of(x) else 1
    return kthvalue(rw, x, (size + 1) // 2, dim, keepdim) if isinstance(size, int) else NotImplemented


@rule(aten.median.default)
def median_of_all(rw: Rewriter, x: fx.Node) -> Any:
    result = median(rw, rw.call(aten.view.default, x, [-1]), 0)
    return result if result is NotImplemented else result[0]


@rule(aten.hypot.default)
def hypot(rw: Rewriter, a: fx.Node, b: fx.Node) -> Any:
    squares = [rw.call(aten.mul.Tensor, v, v) for v in (a, b)]
    return rw.call(aten.sqrt.default, rw.call(aten.add.Tensor, *squares))


@rule(aten.copysign.Tensor)
def copysign(rw: Rewriter, a: fx.Node, b: fx.Node) -> Any:
    """The sign of a zero is that of its reciprocal."""
    negative = [rw.call(aten.lt.Scalar, v, 0) for v in (b, rw.call(aten.reciprocal.default, b))]
    size = rw.call(aten.abs.default, a)
    return rw.call(aten.where.self, rw.call(aten.logical_or.default, *negative), rw.call(aten.neg.default, size), size)


def _make_nan_ignoring_rule(op: Any) -> Any:
    """Ignore NaN: where one operand is NaN the result is the other."""

    def lower(rw: Rewriter, a: fx.Node, b: fx.Node) -> Any:
        if not (dtype_of(a).is_floating_point and dtype_of(b).is_floating_point):
            return rw.call(op, a, b)
        without_b = rw.call(aten.where.self, rw.call(aten.isnan.default, b), a, rw.call(op, a, b))
        return rw.call(aten.where.self, rw.call(aten.isnan.default, a), b, without_b)

    return lower


rule(aten.fmax.default)(_make_nan_ignoring_rule(aten.maximum.default))
rule(aten.fmin.default)(_make_nan_ignoring_rule(aten.minimum.default))


def _prefixes(rw: Rewriter, x: fx.Node, dim: int, fill_value: float) -> Any:
    """The prefixes of ``x`` along ``dim``: one row per position (in dimension -2), with ``fill_value`` after
    the prefix. A reduction of each row is a scan."""
    size = rw.size(x, dim)
    if not isinstance(size, int):
        return None
    rows = rw.call(aten.unsqueeze.default, rw.call(aten.transpose.int, x, dim, -1), -2)
    ones = rw.call(aten.full.default, [size, size], True, dtype=torch.bool)
    is_after = rw.call(aten.logical_not.default, rw.call(aten.tril.default, ones))
    filler = rw.call(aten.full.default, [1], fill_value, dtype=dtype_of(x))
    return rw.call(aten.where.self, is_after, filler, rows)


def _transpose_last(rw: Rewriter, x: fx.Node, dim: int) -> Any:
    return rw.call(aten.transpose.int, x, dim, -1)


@rule(aten.cumprod.default)
def cumprod(rw: Rewriter, x: fx.Node, dim: int, *, dtype: Any = None) -> Any:
    prefixes = _prefixes(rw, to_dtype(rw, x, dtype), dim, 1) if rank_of(x) else None
    return NotImplemented if prefixes is None else _transpose_last(rw, rw.call(aten.prod.dim_int, prefixes, -1), dim)


@rule(aten.logcumsumexp.default)
def logcumsumexp(rw: Rewriter, x: fx.Node, dim: int) -> Any:
    prefixes = _prefixes(rw, x, dim, -math.inf) if rank_of(x) else None
    return (
        NotImplemented
        if prefixes is None
        else _transpose_last(rw, rw.call(aten.logsumexp.default, prefixes, [-1]), dim)
    )


def _running_extreme(rw: Rewriter, x: fx.Node, dim: int, largest: bool) -> Any:
    """The running extreme and its last index, which is the first one of the reversed prefix."""
    if not rank_of(x) or not dtype_of(x).is_floating_point:
        return NotImplemented
    prefixes = _prefixes(rw, x, dim, -math.inf if largest else math.inf)
    if prefixes is None:
        return NotImplemented
    reversed_prefixes = rw.call(aten.flip.default, prefixes, [-1])
    value, index = rw.call(aten.max.dim if largest else aten.min.dim, reversed_prefixes, -1)
    return [
        _transpose_last(rw, value, dim),
        _transpose_last(rw, rw.call(aten.rsub.Scalar, index, rw.size(x, dim) - 1), dim),
    ]


@rule(aten.cummax.default)
def cummax(rw: Rewriter, x: fx.Node, dim: int) -> Any:
    return _running_extreme(rw, x, dim, True)


@rule(aten.cummin.default)
def cummin(rw: Rewriter, x: fx.Node, dim: int) -> Any:
    return _running_extreme(rw, x, dim, False)


@rule(aten.searchsorted.Tensor)
def searchsorted(
    rw: Rewriter, edges: fx.Node, x: fx.Node, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    """The number of edges below each element."""
    if sorter is not None:
        return NotImplemented
    elements = rw.call(aten.unsqueeze.default, x, -1)
    candidates = rw.call(aten.unsqueeze.default, edges, -2) if rank_of(edges) > 1 else edges
    below = rw.call(aten.le.Tensor if right or side == "right" else aten.lt.Tensor, candidates, elements)
    count = to_dtype(rw, below, torch.int32 if out_int32 else torch.int64)
    return rw.call(aten.sum.dim_IntList, count, [-1], dtype=dtype_of(count))


@rule(aten.bucketize.Tensor)
def bucketize(rw: Rewriter, x: fx.Node, edges: fx.Node, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(rw, edges, x, out_int32=out_int32, right=right)


@rule(aten.histc.default)
def histc(rw: Rewriter, x: fx.Node, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """A scatter-add of ones at the bin of each element in range; the last bin includes its upper edge.

    Every step is computed in float64 and rounded to the input's dtype. The numbers are the same, and no backend lowers
    float64 to less precision, which would move elements on an edge to the neighboring bin.
    """
    if not all(isinstance(n, int | float) for n in (bins, min, max)):
        return NotImplemented
    dtype = dtype_of(x)

    def round_to_input(value: fx.Node) -> Any:
        return to_dtype(rw, to_dtype(rw, value, dtype), torch.float64)

    flat = to_dtype(rw, rw.call(aten.view.default, x, [-1]), torch.float64)
    low, high = _histogram_range(rw, flat, dtype, min, max)
    in_range = rw.call(
        aten.logical_and.default, rw.call(aten.ge.Tensor, flat, low), rw.call(aten.le.Tensor, flat, high)
    )
    scaled = round_to_input(rw.call(aten.mul.Scalar, round_to_input(rw.call(aten.sub.Tensor, flat, low)), bins))
    bin_ = round_to_input(rw.call(aten.div.Tensor, scaled, round_to_input(rw.call(aten.sub.Tensor, high, low))))
    zero = rw.call(aten.full.default, [1], 0, dtype=torch.float64)  # replaces the undefined bin of a NaN
    bin_ = to_dtype(rw, rw.call(aten.where.self, in_range, bin_, zero), torch.int64)
    bin_ = rw.call(aten.clamp.default, bin_, 0, bins - 1)
    counts = rw.call(aten.full.default, [bins], 0, dtype=dtype)
    return rw.call(aten.scatter_add.default, counts, 0, bin_, to_dtype(rw, in_range, dtype))


def _histogram_range(rw: Rewriter, flat: fx.Node, dtype: torch.dtype, low: float, high: float) -> tuple[Any, Any]:
    """The range of a histogram: ``low`` to ``high`` or, if they are equal, the range of the elements, widened by one
    to each side if all elements are equal."""
    if low != high:
        ends = [torch.tensor(end, dtype=dtype).item() for end in (low, high)]
        first, last = (rw.call(aten.full.default, [1], end, dtype=torch.float64) for end in ends)
        return first, last
    extremes = [rw.call(op, flat, [0], True) for op in (aten.amin.default, aten.amax.default)]
    margin = to_dtype(rw, rw.call(aten.eq.Tensor, *extremes), torch.float64)
    return rw.call(aten.sub.Tensor, extremes[0], margin), rw.call(aten.add.Tensor, extremes[1], margin)


@rule(aten.bilinear.default)
def bilinear(rw: Rewriter, a: fx.Node, b: fx.Node, weight: fx.Node, bias: Any = None) -> Any:
    """Each output is a bilinear form of the two inputs."""
    outputs, first, second = (int(s) for s in weight.meta["val"].shape)
    permuted = rw.call(aten.permute.default, weight, [1, 0, 2])
    table = rw.call(aten.view.default, permuted, [first, outputs * second])
    rows = rw.call(aten.matmul.default, a, table)
    rows = rw.call(aten.view.default, rows, [*rw.shape(a)[:-1], outputs, second])
    out = rw.call(aten.mul.Tensor, rows, rw.call(aten.unsqueeze.default, b, -2))
    out = rw.call(aten.sum.dim_IntList, out, [-1])
    return out if bias is None else rw.call(aten.add.Tensor, out, bias)


@rule(aten.roll.default)
def roll(rw: Rewriter, x: fx.Node, shifts: Any, dims: Any = ()) -> Any:
    """Without dimensions, roll the flattened tensor."""
    if dims or dims == 0:
        return NotImplemented
    flat = rw.call(aten.view.default, x, [-1])
    rolled = rw.call(aten.roll.default, flat, [shifts] if isinstance(shifts, int) else list(shifts), [0])
    return rw.call(aten.view.default, rolled, rw.shape(x), val=x.meta["val"])


@rule(aten.constant_pad_nd.default)
def constant_pad(rw: Rewriter, x: fx.Node, pads: Any, value: Any = 0) -> Any:
    """Negative padding is a slice."""
    if all(not isinstance(p, int) or p >= 0 for p in pads):
        return NotImplemented
    for index in range(len(pads) // 2):
        before, after = pads[2 * index : 2 * index + 2]
        dim = rank_of(x) - 1 - index
        size = rw.size(x, dim)
        if not isinstance(size, int):
            return NotImplemented
        if before < 0 or after < 0:
            x = rw.call(aten.slice.Tensor, x, dim, max(-before, 0), size + min(after, 0), 1)
    rest = [max(p, 0) for p in pads]
    return rw.call(aten.constant_pad_nd.default, x, rest, value) if any(rest) else x


@rule(aten.empty_like.default, aten.new_empty.default, aten.empty_permuted.default, aten.new_empty_strided.default)
def empty(rw: Rewriter, first: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """An uninitialized tensor."""
    if isinstance(first, fx.Node):
        shape = list(args[0]) if args and isinstance(args[0], list | tuple) else rw.shape(first)
        dtype = dtype or dtype_of(first)
    else:
        shape = list(first)
    return rw.call(aten.empty.memory_format, shape, dtype=dtype or torch.get_default_dtype())
