"""Lowering of data movement: concatenation, reshapes, permutations, slices, padding."""

from __future__ import annotations

from edgewright.ir.graph import Dim, Op, Value
from edgewright.lowering.aten_to_core.operands import reshape_sizes
from edgewright.lowering.passes.layout import GroupLowering, Order, common_order, identity, permuted_order


def cat(low: GroupLowering, op: Op) -> None:
    out = op.outputs[0]
    assert out is not None
    rank = len(out.shape)
    order = common_order(low, op, rank)
    parts = [low.get(v, order) for v in op.args["tensors"]]
    _concatenate(low, parts, low.make(out, order), order.index(op.args["dim"] % rank))


def _concatenate(low: GroupLowering, parts: list[Value], out: Value, dim: int) -> None:
    """Emit a chain of concatenations: one node has at most five inputs."""
    while len(parts) > 5:
        shape = list(parts[0].bound)
        shape[dim] = sum(int(p.bound[dim]) for p in parts[:5])
        partial = low.temporary(shape, out)
        low.emit("core.cat", partial, tensors=parts[:5], dim=dim)
        parts = [partial, *parts[5:]]
    low.emit("core.cat", out, tensors=parts, dim=dim)


def stack(low: GroupLowering, op: Op) -> None:
    """Unsqueeze every tensor, then concatenate along the new dimension."""
    out = op.outputs[0]
    assert out is not None
    dim = op.args["dim"] % len(out.shape)
    parts = []
    for value in op.args["tensors"]:
        size = [reshape_sizes(value)[d] for d in range(len(value.shape))]
        shape = [*value.bound[:dim], 1, *value.bound[dim:]]
        parts.append(low.temporary(shape, out))
        low.emit("core.view", parts[-1], self=low.get(value), size=[*size[:dim], 1, *size[dim:]])
    _concatenate(low, parts, low.make(out), dim)


def permute(low: GroupLowering, op: Op) -> None:
    """No node: the result is an alias with permuted dimension order."""
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    for order in [identity(len(x.shape))] if x.constant else low.orders(x):
        low.alias(out, permuted_order(op, order), low.get(x, order))


def pixel_shuffle(low: GroupLowering, op: Op) -> None:
    """Reshape to ``[N, C/r², r, r, H, W]``, permute to ``[N, C/r², H, r, W, r]``, reshape to the result."""
    x, out, factor = op.args["self"], op.outputs[0], op.args["upscale_factor"]
    assert out is not None
    batch, channels, height, width = (reshape_sizes(x)[d] for d in range(4))
    split_size = [batch, channels // factor**2, factor, factor, height, width]
    bound = [x.bound[0], channels // factor**2, factor, factor, *x.bound[2:]]
    dims = [0, 1, 4, 2, 5, 3]
    parts, permuted_parts = low.temporary(bound, out), low.temporary([bound[d] for d in dims], out)
    low.emit("core.view", parts, self=low.get(x), size=split_size)
    low.emit("core.permute", permuted_parts, self=parts, dims=dims)
    low.emit("core.view", low.make(out), self=permuted_parts, size=[reshape_sizes(out)[d] for d in range(4)])


def view(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    low.emit("core.view", low.make(out), self=low.get(x), size=[reshape_sizes(out)[d] for d in range(len(out.shape))])


def slice_(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order = common_order(low, op, len(out.shape))
    dim = op.args["dim"] % len(x.shape)
    size = int(x.bound[dim])
    start = op.args["start"] or 0
    start = min(max(start + size if start < 0 else start, 0), size)
    _slice_dim(low, x, low.make(out, order), order, dim, start, int(out.bound[dim]))


def _slice_dim(low: GroupLowering, x: Value, out: Value, order: Order, dim: int, start: int, length: int) -> None:
    """Slice one dimension. A length of 0 means the full extent of a dynamic dimension."""
    starts = [start if d == dim else 0 for d in order]
    lengths = [length if d == dim else 0 if isinstance(x.shape[d], Dim) else int(x.bound[d]) for d in order]
    low.emit("core.slice", out, self=low.get(x, order), start=starts, length=lengths)


def split(low: GroupLowering, op: Op) -> None:
    """One slice per output."""
    x = op.args["self"]
    rank = len(x.shape)
    order, dim = common_order(low, op, rank), op.args["dim"] % rank
    sizes = op.args["split_sizes"] if "split_sizes" in op.args else [op.args["split_size"]] * len(op.outputs)
    start = 0
    for out, size in zip(op.outputs, sizes, strict=False):
        length = min(size, int(x.bound[dim]) - start)
        if out is not None:
            _slice_dim(low, x, low.make(out, order), order, dim, start, length)
        start += length


def select(low: GroupLowering, op: Op) -> None:
    """Slice of length 1, then remove the dimension; ``unbind`` selects every index."""
    x = op.args["self"]
    dim = op.args["dim"] % len(x.shape)
    first = op.args["index"] % int(x.bound[dim]) if "index" in op.args else 0
    for index, out in enumerate(op.outputs):
        if out is not None:
            _select_index(low, op, x, out, dim, first + index)


def _select_index(low: GroupLowering, op: Op, x: Value, out: Value, dim: int, index: int) -> None:
    order = common_order(low, op, len(x.shape))
    sliced = low.temporary([1 if d == dim else x.bound[d] for d in order], out)
    _slice_dim(low, x, sliced, order, dim, index, 1)
    squeezed_order = tuple(d - (d > dim) for d in order if d != dim)
    low.emit(
        "core.view", low.make(out, squeezed_order), self=sliced, size=[reshape_sizes(out)[d] for d in squeezed_order]
    )


def pad(low: GroupLowering, op: Op) -> None:
    x, out = op.args["self"], op.outputs[0]
    assert out is not None
    order, rank = common_order(low, op, len(out.shape)), len(x.shape)
    pads = op.args["pad"]
    before, after = [0] * rank, [0] * rank
    for index in range(len(pads) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    low.emit("core.pad", low.make(out, order), self=low.get(x, order), before=[before[d] for d in order],
             after=[after[d] for d in order], value=float(op.args["value"] or 0))  # fmt: skip


def forward_input(low: GroupLowering, op: Op) -> None:
    """No node: the result is an alias of the input."""
    x, out = next(op.inputs()), op.outputs[0]
    assert out is not None
    if x.constant:
        low.alias(out, identity(len(x.shape)), low.get(x))
        return
    for order in low.orders(x):
        low.alias(out, order, low.get(x, order))
