"""Lowering of argmax, argmin, max, min, top-k, sort and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgewright.backends.qualcomm.image import order_with_dim_last
from edgewright.backends.qualcomm.lower import QnnLowering, as_uint32, output_of
from edgewright.backends.table import reduced_dims
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import Order, common_order, identity, order_with_last

Lower = Callable[[QnnLowering, Op], None]


def _reduced_order(order: Order, dim: int, keepdim: bool) -> Order:
    """The dimension order without a reduced dimension."""
    return order if keepdim else tuple(d - (d > dim) for d in order if d != dim)


def arg_reduce(kind: str) -> Lower:
    """``argmax`` and ``argmin``; without a dimension, of the flattened tensor."""

    def lower(low: QnnLowering, op: Op) -> None:
        x, out = op.args["self"], output_of(op)
        keepdim = bool(op.args.get("keepdim"))
        if op.args.get("dim") is None:
            flat = low.reshape(low.get(x), [math.prod(x.bound)])
            result = low.plain_temporary([1] if out.shape else [])
            low.node(kind, [flat], result, axis=0, keep_dims=bool(out.shape))
            low.alias(out, identity(len(out.shape)), low.reshape(result, out.bound))
            return
        (dim,), order = reduced_dims(op), common_order(low, op, len(x.shape))
        final = _reduced_order(order, dim, keepdim)
        low.finish(op, final, kind, [low.get(x, order)], axis=order.index(dim), keep_dims=keepdim)

    return lower


def reduce_with_index(kind: str, arg_kind: str) -> Lower:
    """``max`` and ``min`` along a dimension: values, and indices if they are used."""

    def lower(low: QnnLowering, op: Op) -> None:
        x = op.args["self"]
        (dim,), order = reduced_dims(op), common_order(low, op, len(x.shape))
        keepdim = bool(op.args.get("keepdim"))
        final, source = _reduced_order(order, dim, keepdim), low.get(x, order)
        values, *index_outputs = op.outputs
        if values is not None:
            result = low.make(values, final)
            values_out = result if values.q is not None or x.q is None else low.temporary(result.bound, source)
            low.node(kind, [source], values_out, axes=as_uint32([order.index(dim)]), keep_dims=keepdim)
        for index in index_outputs:
            if index is not None:
                low.node(arg_kind, [source], low.make(index, final), axis=order.index(dim), keep_dims=keepdim)

    return lower


def top_k(low: QnnLowering, op: Op) -> None:
    """``topk`` and ``sort``; the sorted dimension is made the last."""
    x, order = op.args["self"], order_with_dim_last(low, op)
    count = int(op.args["k"]) if op.kind == "topk" else x.bound[order[-1]]
    largest = bool(op.args.get("largest", True) if op.kind == "topk" else op.args.get("descending"))
    source = low.get(x, order)
    shape = [*source.bound[:-1], count]
    values, *index_outputs = op.outputs
    index_out = index_outputs[0] if index_outputs else None
    result = [
        low.make(values, order) if values is not None else low.temporary(shape, source),
        low.make(index_out, order) if index_out is not None else low.plain_temporary(shape),
    ]
    low.node("TopK", [source], result, k=count, largest=largest)


def cumulative_sum(low: QnnLowering, op: Op) -> None:
    """The summed dimension is made the last: along others the HTP's 8-bit results are wrong."""
    x = op.args["self"]
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.finish(op, order, "CumulativeSum", [low.get(x, order)], axis=rank - 1, exclusive=False, reverse=False)
