"""Lowering of operators that only move elements."""

from __future__ import annotations

from edgewright.backends.xnnpack.operands import size_of
from edgewright.ir.graph import Dim, Op, Value
from edgewright.lowering.passes.layout import GroupLowering, Order, common_order, identity
from edgewright.lowering.passes.view_order import permuted_order


def cat(low: GroupLowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    parts = [low.get(v, order) for v in op.args["tensors"]]
    _join(low, parts, low.make(out, order), order.index(op.args["dim"] % rank))


def _join(low: GroupLowering, parts: list[Value], out: Value, dim: int) -> None:
    """A node joins five tensors at most."""
    while len(parts) > 5:
        shape = list(parts[0].bound)
        shape[dim] = sum(int(p.bound[dim]) for p in parts[:5])
        joined = low.temporary(shape, out)
        low.emit("cat", joined, tensors=parts[:5], dim=dim)
        parts = [joined, *parts[5:]]
    low.emit("cat", out, tensors=parts, dim=dim)


def stack(low: GroupLowering, op: Op) -> None:
    """Each tensor with one more dimension, joined along it."""
    out = op.outputs[0]
    assert out is not None
    dim = op.args["dim"] % len(out.shape)
    parts = []
    for value in op.args["tensors"]:
        size = [size_of(value, d) for d in range(len(value.shape))]
        shape = [*value.bound[:dim], 1, *value.bound[dim:]]
        parts.append(low.temporary(shape, out))
        low.emit("view", parts[-1], self=low.get(value), size=[*size[:dim], 1, *size[dim:]])
    _join(low, parts, low.make(out), dim)


def permute(low: GroupLowering, op: Op) -> None:
    """Another name for what is there."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    for order in [identity(len(x.shape))] if x.constant else low.orders(x):
        low.alias(out, permuted_order(op, order), low.get(x, order))


def pixel_shuffle(low: GroupLowering, op: Op) -> None:
    """Channels become pixels: cut them in three, put two of the parts beside height and width."""
    x, out, factor = op.args["self"], op.outputs[0], op.args["upscale_factor"]
    assert out is not None
    batch, channels, height, width = (size_of(x, d) for d in range(4))
    cut = [batch, channels // factor**2, factor, factor, height, width]
    bound = [x.bound[0], channels // factor**2, factor, factor, *x.bound[2:]]
    dims = [0, 1, 4, 2, 5, 3]
    parts, moved = low.temporary(bound, out), low.temporary([bound[d] for d in dims], out)
    low.emit("view", parts, self=low.get(x), size=cut)
    low.emit("permute", moved, self=parts, dims=dims)
    low.emit("view", low.make(out), self=moved, size=[size_of(out, d) for d in range(4)])


def view(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    low.emit("view", low.make(out), self=low.get(x), size=[size_of(out, d) for d in range(len(out.shape))])


def slice_(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order = common_order(low, op, len(out.shape))
    dim = op.args["dim"] % len(x.shape)
    size = int(x.bound[dim])
    start = op.args["start"] or 0
    start = min(max(start + size if start < 0 else start, 0), size)
    _cut(low, x, low.make(out, order), order, dim, start, int(out.bound[dim]))


def _cut(low: GroupLowering, x: Value, out: Value, order: Order, dim: int, start: int, length: int) -> None:
    """A range of one dimension. Lengths of 0 stand for all there is, whatever it is at run time."""
    starts = [start if d == dim else 0 for d in order]
    lengths = [length if d == dim else 0 if isinstance(x.shape[d], Dim) else int(x.bound[d]) for d in order]
    low.emit("slice", out, self=low.get(x, order), start=starts, length=lengths)


def split(low: GroupLowering, op: Op) -> None:
    """Ranges of one dimension, one after the other."""
    x = op.args["self"]
    rank = len(x.shape)
    order, dim = common_order(low, op, rank), op.args["dim"] % rank
    sizes = op.args["split_sizes"] if "split_sizes" in op.args else [op.args["split_size"]] * len(op.outputs)
    at = 0
    for out, size in zip(op.outputs, sizes, strict=False):
        length = min(size, int(x.bound[dim]) - at)
        if out is not None:
            _cut(low, x, low.make(out, order), order, dim, at, length)
        at += length


def select(low: GroupLowering, op: Op) -> None:
    """One place of a dimension, which is then gone."""
    x = op.args["self"]
    dim = op.args["dim"] % len(x.shape)
    first = op.args["index"] % int(x.bound[dim]) if "index" in op.args else 0
    for index, out in enumerate(op.outputs):
        if out is not None:
            _take(low, op, x, out, dim, first + index)


def _take(low: GroupLowering, op: Op, x: Value, out: Value, dim: int, index: int) -> None:
    order = common_order(low, op, len(x.shape))
    thin = low.temporary([1 if d == dim else x.bound[d] for d in order], out)
    _cut(low, x, thin, order, dim, index, 1)
    left = tuple(d - (d > dim) for d in order if d != dim)
    low.emit("view", low.make(out, left), self=thin, size=[size_of(out, d) for d in left])


def pad(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order, rank = common_order(low, op, len(out.shape)), len(x.shape)
    pads = op.args["pad"]
    before, after = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    low.emit("pad", low.make(out, order), self=low.get(x, order), before=[before[d] for d in order],
             after=[after[d] for d in order], value=float(op.args["value"] or 0))  # fmt: skip


def same(low: GroupLowering, op: Op) -> None:
    """A copy that changes nothing: another name."""
    x, out = next(op.inputs()), op.outputs[0]
    assert out is not None
    if x.constant:
        low.alias(out, identity(len(x.shape)), low.get(x))
        return
    for order in low.orders(x):
        low.alias(out, order, low.get(x, order))
