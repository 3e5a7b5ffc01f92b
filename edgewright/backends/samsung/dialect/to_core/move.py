"""Translation of ENN's data movement to core operators."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.backends.samsung.dialect.numerics import inputs_of, is_qint8, result_of
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.backends.samsung.dialect.to_core.rewrite import (
    TO_NCHW,
    TO_NHWC,
    UNLIMITED,
    EnnRewrite,
    non_empty,
    rule,
    widen_to_int16,
)
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op, Value

_INDEX_TYPES = (np.dtype(np.int64), np.dtype(np.int32))


@rule("RESHAPE")
def _reshape(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not non_empty(out):
        return False
    rw.emit_nchw("core.view", op, out, self=rw.nchw(x), size=list(out.bound))
    return True


@rule("TRANSPOSE")
def _transpose(rw: EnnRewrite, op: Op) -> bool:
    (x,), out, dims = inputs_of(op), result_of(op), [int(d) for d in op.args["perm"]]
    if rw.prefers_nhwc([x]):
        rw.emit_nchw("core.permute", op, out, self=rw.nhwc(x), dims=[TO_NCHW[d] for d in dims])
    else:
        rw.emit_nchw("core.permute", op, out, self=rw.nchw(x), dims=dims)
    return True


@rule("CONCAT")
def _concat(rw: EnnRewrite, op: Op) -> bool:
    operands, out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    if not non_empty(*operands):
        return False
    if len(out.bound) == 4 and rw.prefers_nhwc(operands):
        rw.emit_nhwc("core.cat", op, out, tensors=[rw.nhwc(v) for v in operands], dim=TO_NCHW[axis])
    else:
        rw.emit_nchw("core.cat", op, out, tensors=[rw.nchw(v) for v in operands], dim=axis)
    return True


def _slice(rw: EnnRewrite, op: Op, x: Value, out: Value, start: list[int]) -> None:
    length = list(out.bound)
    if len(length) == 4 and rw.prefers_nhwc([x]):
        rw.emit_nhwc("core.slice", op, out, self=rw.nhwc(x), start=[start[d] for d in TO_NHWC],
                  length=[length[d] for d in TO_NHWC])  # fmt: skip
    else:
        rw.emit_nchw("core.slice", op, out, self=rw.nchw(x), start=start, length=length)


@rule("STRIDEDSLICE")
def _strided_slice(rw: EnnRewrite, op: Op) -> bool:
    """Slice, gather every ``stride``-th element, then drop dimensions."""
    (x,), out, steps = inputs_of(op), result_of(op), [int(n) for n in op.args["strides"]]
    if not non_empty(x, out) or min(steps) < 1:
        return False
    ranges = [range(*slice(int(a), int(b), s).indices(n)) for a, b, s, n in
             zip(op.args["begin"], op.args["end"], steps, x.bound, strict=True)]  # fmt: skip
    lengths = [(r[-1] - r[0]) + 1 for r in ranges]
    sliced = replace(x, name=f"{x.name}_cut", shape=tuple(lengths), data=None)
    current = x if sliced.bound == x.bound else sliced
    if current is sliced:
        last = out if sliced.bound == out.bound else sliced
        _slice(rw, op, x, last, [r[0] for r in ranges])
        current = last
    for dim, (r, step) in enumerate(zip(ranges, steps, strict=True)):
        current = current if step == 1 else _gather_strided(rw, op, current, dim, np.arange(len(r)) * step)
    if current is not out:
        rw.emit_nchw("core.view", op, out, self=rw.nchw(current), size=list(out.bound))
    return True


def _gather_strided(rw: EnnRewrite, op: Op, x: Value, dim: int, positions: Array) -> Value:
    index = Value(f"{x.name}_places", np.dtype(np.int64), positions.shape, (0,), positions.astype(np.int64))
    shape = tuple(len(positions) if d == dim else n for d, n in enumerate(x.bound))
    result = replace(x, name=f"{x.name}_{dim}", shape=shape, data=None)
    _emit_index_select(rw, op, x, dim, index, result)
    rw.available.add(result)
    return result


def _emit_index_select(
    rw: EnnRewrite, op: Op, x: Value, dim: int, index: Value, out: Value, outside: OutOfRangePolicy | None = None
) -> None:
    """Row gathers need dense rows, which int8 tensors may not have: those are widened to int16."""
    if not is_qint8(x):
        rw.emit("core.index_select", op, out, self=rw.nchw(x), dim=dim, index=index, outside=outside)
        return
    wide_input, wide_output = widen_to_int16(x), widen_to_int16(out)
    if x.data is not None:
        wide_input = replace(wide_input, data=x.data.astype(np.int16))
    else:
        rw.emit(f"{PREFIX}CLIP", op, wide_input, inputs=[rw.nchw(x)], **UNLIMITED)
    rw.emit("core.index_select", op, wide_output, self=wide_input, dim=dim, index=index, outside=outside)
    rw.emit(f"{PREFIX}CLIP", op, out, inputs=[wide_output], **UNLIMITED)


@rule("TopK")
def _topk(rw: EnnRewrite, op: Op) -> bool:
    """Indices of the largest elements, and a gather of their values."""
    (x,), (values, indices) = inputs_of(op), op.outputs
    if (
        x.q is not None
        or x.constant
        or indices is None
        or indices.dtype != np.dtype(np.int64)
        or not non_empty(x, indices)
    ):
        return False
    operand, dim = rw.nchw(x), len(x.bound) - 1
    rw.emit_nchw("core.topk_indices", op, indices, self=operand, k=int(op.args["k_dims"]), dim=dim, largest=True)
    if values is not None:
        rw.emit_nchw("core.gather", op, values, self=operand, dim=dim, index=indices)
    return True


@rule("GATHER")
def _gather(rw: EnnRewrite, op: Op) -> bool:
    (x, index), out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    if not non_empty(x, index, out) or index.q is not None or index.dtype not in _INDEX_TYPES:
        return False
    axis %= len(x.bound)
    flat = (int(np.prod(index.bound)),)
    flat_index = replace(index, name=f"{index.name}_flat", shape=flat, dim_order=(0,))
    if index.data is not None:
        flat_index = replace(flat_index, data=index.data.reshape(flat))
    elif index.bound != flat:
        rw.emit("core.view", op, flat_index, self=rw.nchw(index), size=list(flat))
    else:
        flat_index = rw.nchw(index)
    shape = (*x.bound[:axis], *flat, *x.bound[axis + 1 :])
    rows = replace(out, name=f"{out.name}_rows", shape=shape, dim_order=tuple(range(len(shape))))
    _emit_index_select(rw, op, x, axis, flat_index, rows, OutOfRangePolicy(f"{op.kind} {out.name!r}", wrap=True))
    rw.emit_nchw("core.view", op, out, self=rows, size=list(out.bound))
    return True


@rule("DEPTH_TO_SPACE")
def _pixel_shuffle(rw: EnnRewrite, op: Op) -> bool:
    """Blocks of channels become blocks of pixels."""
    (x,), out, block = inputs_of(op), result_of(op), int(op.args["block_size"])
    if not non_empty(x, out) or len(x.bound) != 4:
        return False
    batch, channels, high, wide = x.bound
    image, target = rw.nhwc(x), rw.define(out, True)
    split_shape = (batch, high, wide, channels // block**2, block, block)
    permuted_shape = tuple(split_shape[d] for d in (0, 1, 4, 2, 5, 3))
    split, permuted = (replace(image, name=f"{image.name}_{n}", shape=s, dim_order=tuple(range(6)), data=None)
                       for n, s in (("apart", split_shape), ("moved", permuted_shape)))  # fmt: skip
    rw.emit("core.view", op, split, self=image, size=list(split_shape))
    rw.emit("core.permute", op, permuted, self=split, dims=[0, 1, 4, 2, 5, 3])
    rw.emit("core.view", op, target, self=permuted, size=list(target.bound))
    return True


@rule("SPLIT")
def _split(rw: EnnRewrite, op: Op) -> bool:
    (x,), axis, at = inputs_of(op), int(op.args["axis"]), 0
    for out, size in zip(op.outputs, op.args["point"], strict=True):
        if out is not None:
            _slice(rw, op, x, out, [at if d == axis else 0 for d in range(len(x.bound))])
        at += int(size)
    return True


@rule("PAD")
def _pad(rw: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not non_empty(x):
        return False
    pads, rank = [int(n) for n in op.args["explicit_padding"]], len(x.bound)
    before_after = [pads[:rank], pads[rank:]]
    if rank == 4 and rw.prefers_nhwc([x]):
        before, after = ([side[d] for d in TO_NHWC] for side in before_after)
        rw.emit_nhwc("core.pad", op, out, self=rw.nhwc(x), before=before, after=after, value=0.0)
    else:
        rw.emit_nchw("core.pad", op, out, self=rw.nchw(x), before=before_after[0], after=before_after[1], value=0.0)
    return True
