"""Lowering of argmax, argmin, max, min, top-k, sort and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgewright.backends.qualcomm.image import dim_last
from edgewright.backends.qualcomm.lower import QnnLowering, result, unsigned
from edgewright.backends.table import reduced_dims
from edgewright.ir.graph import Op
from edgewright.lowering.passes.layout import Order, common_order, identity, order_with_last

Lower = Callable[[QnnLowering, Op], None]


def _without(order: Order, dim: int, keep: bool) -> Order:
    """The order of what is left when a dimension is reduced."""
    return order if keep else tuple(d - (d > dim) for d in order if d != dim)


def place(kind: str) -> Lower:
    """``argmax`` and ``argmin``; without a dimension, of the flattened tensor."""

    def lower(low: QnnLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        keep = bool(op.args.get("keepdim"))
        if op.args.get("dim") is None:
            flat = low.reshaped(low.get(x), [math.prod(x.bound)])
            made = low.whole([1] if out.shape else [])
            low.node(kind, [flat], made, axis=0, keep_dims=bool(out.shape))
            low.alias(out, identity(len(out.shape)), low.reshaped(made, out.bound))
            return
        (dim,), order = reduced_dims(op), common_order(low, op, len(x.shape))
        final = _without(order, dim, keep)
        low.finish(op, final, kind, [low.get(x, order)], axis=order.index(dim), keep_dims=keep)

    return lower


def extreme(kind: str, place_kind: str) -> Lower:
    """The values, and the places if somebody reads them."""

    def lower(low: QnnLowering, op: Op) -> None:
        x = op.args["self"]
        (dim,), order = reduced_dims(op), common_order(low, op, len(x.shape))
        keep = bool(op.args.get("keepdim"))
        final, held = _without(order, dim, keep), low.get(x, order)
        values, *places = op.outputs
        if values is not None:
            made = low.make(values, final)
            whole = made if values.q is not None or x.q is None else low.temporary(made.bound, held)
            low.node(kind, [held], whole, axes=unsigned([order.index(dim)]), keep_dims=keep)
        for found in places:
            if found is not None:
                low.node(place_kind, [held], low.make(found, final), axis=order.index(dim), keep_dims=keep)

    return lower


def best(low: QnnLowering, op: Op) -> None:
    """``topk`` and ``sort``, along the last dimension: the one that is sorted is put there."""
    x, order = op.args["self"], dim_last(low, op)
    count = int(op.args["k"]) if op.kind == "topk" else x.bound[order[-1]]
    largest = bool(op.args.get("largest", True) if op.kind == "topk" else op.args.get("descending"))
    source = low.get(x, order)
    shape = [*source.bound[:-1], count]
    values, *places = op.outputs
    read = places[0] if places else None
    made = [
        low.make(values, order) if values is not None else low.temporary(shape, source),
        low.make(read, order) if read is not None else low.whole(shape),
    ]
    low.node("TopK", [source], made, k=count, largest=largest)


def running_sum(low: QnnLowering, op: Op) -> None:
    """Along the last dimension: along others, the HTP's of bytes are wrong."""
    x = op.args["self"]
    rank = len(x.shape)
    order = order_with_last(op.args["dim"] % rank, rank)
    low.finish(op, order, "CumulativeSum", [low.get(x, order)], axis=rank - 1, exclusive=False, reverse=False)
