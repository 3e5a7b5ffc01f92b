"""Lowering of operators that only move elements."""

from __future__ import annotations

from edgewright.backends.xnnpack.lower import Lowering, common_order, identity, size_of
from edgewright.ir.graph import Op


def cat(low: Lowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    parts = [low.get(v, order) for v in op.args["tensors"]]
    dim = order.index(op.args["dim"] % rank)
    while len(parts) > 5:
        shape = list(parts[0].bound)
        shape[dim] = sum(int(p.bound[dim]) for p in parts[:5])
        joined = low.temporary(shape, out)
        low.emit("cat", joined, tensors=parts[:5], dim=dim)
        parts = [joined, *parts[5:]]
    low.emit("cat", low.make(out, order), tensors=parts, dim=dim)


def permute(low: Lowering, op: Op) -> None:
    """Another name for what is there."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    rank = len(x.shape)
    if "dims" in op.args:
        dims = [d % rank for d in op.args["dims"]]
    else:
        dims = list(range(rank))
        first, second = op.args.get("dim0", 0) % rank, op.args.get("dim1", 1) % rank
        dims[first], dims[second] = dims[second], dims[first]
    for order in low.orders(x):
        low.alias(out, tuple(dims.index(d) for d in order), low.get(x, order))


def view(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    low.emit("view", low.make(out), self=low.get(x), size=[size_of(out, d) for d in range(len(out.shape))])


def slice_(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order = common_order(low, op, len(out.shape))
    dim = op.args["dim"] % len(x.shape)
    size = int(x.bound[dim])
    start = op.args["start"] or 0
    start = max(start + size if start < 0 else start, 0)
    starts = [min(start, size) if d == dim else 0 for d in order]
    length = [int(out.bound[d]) for d in order]
    low.emit("slice", low.make(out, order), self=low.get(x, order), start=starts, length=length)


def pad(low: Lowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order, rank = common_order(low, op, len(out.shape)), len(x.shape)
    pads = op.args["pad"]
    before, after = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    low.emit("pad", low.make(out, order), self=low.get(x, order), before=[before[d] for d in order],
             after=[after[d] for d in order], value=float(op.args["value"] or 0))  # fmt: skip


def same(low: Lowering, op: Op) -> None:
    """A copy that changes nothing: another name."""
    x, out = next(op.inputs()), op.outputs[0]
    assert out is not None
    if x.constant:
        low.alias(out, identity(len(x.shape)), low.get(x))
        return
    for order in low.orders(x):
        low.alias(out, order, low.get(x, order))
