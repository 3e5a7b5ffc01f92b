"""ENN's operators that only move elements, as the engine's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgewright.engine.dialects.enn_rewrite import (
    TO_NCHW,
    TO_NHWC,
    UNLIMITED,
    EnnRewrite,
    non_empty,
    rule,
    widen_to_int16,
)
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.enn.numerics import byte, inputs_of, result_of
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Array, Op, Value

_PLACES = (np.dtype(np.int64), np.dtype(np.int32))


@rule("RESHAPE")
def _reshape(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not non_empty(out):
        return False
    made.flat("view", op, out, self=made.planes(x), size=list(out.bound))
    return True


@rule("TRANSPOSE")
def _transpose(made: EnnRewrite, op: Op) -> bool:
    (x,), out, dims = inputs_of(op), result_of(op), [int(d) for d in op.args["perm"]]
    if made.any_pixels([x]):
        made.flat("permute", op, out, self=made.image(x), dims=[TO_NCHW[d] for d in dims])
    else:
        made.flat("permute", op, out, self=made.planes(x), dims=dims)
    return True


@rule("CONCAT")
def _concat(made: EnnRewrite, op: Op) -> bool:
    given, out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    if not non_empty(*given):
        return False
    if len(out.bound) == 4 and made.any_pixels(given):
        made.made("cat", op, out, tensors=[made.image(v) for v in given], dim=TO_NCHW[axis])
    else:
        made.flat("cat", op, out, tensors=[made.planes(v) for v in given], dim=axis)
    return True


def _slice(made: EnnRewrite, op: Op, x: Value, out: Value, start: list[int]) -> None:
    length = list(out.bound)
    if len(length) == 4 and made.any_pixels([x]):
        made.made("slice", op, out, self=made.image(x), start=[start[d] for d in TO_NHWC],
                  length=[length[d] for d in TO_NHWC])  # fmt: skip
    else:
        made.flat("slice", op, out, self=made.planes(x), start=start, length=length)


@rule("STRIDEDSLICE")
def _strided(made: EnnRewrite, op: Op) -> bool:
    """Cut, then every so many elements taken, then dimensions taken away."""
    (x,), out, steps = inputs_of(op), result_of(op), [int(n) for n in op.args["strides"]]
    if not non_empty(x, out) or min(steps) < 1:
        return False
    sizes = [range(*slice(int(a), int(b), s).indices(n)) for a, b, s, n in
             zip(op.args["begin"], op.args["end"], steps, x.bound, strict=True)]  # fmt: skip
    lengths = [(r[-1] - r[0]) + 1 for r in sizes]
    cut = replace(x, name=f"{x.name}_cut", shape=tuple(lengths), data=None)
    now = x if cut.bound == x.bound else cut
    if now is cut:
        last = out if cut.bound == out.bound else cut
        _slice(made, op, x, last, [r[0] for r in sizes])
        now = last
    for dim, (r, step) in enumerate(zip(sizes, steps, strict=True)):
        now = now if step == 1 else _taken(made, op, now, dim, np.arange(len(r)) * step)
    if now is not out:
        made.flat("view", op, out, self=made.planes(now), size=list(out.bound))
    return True


def _taken(made: EnnRewrite, op: Op, x: Value, dim: int, places: Array) -> Value:
    listed = Value(f"{x.name}_places", np.dtype(np.int64), places.shape, (0,), places.astype(np.int64))
    shape = tuple(len(places) if d == dim else n for d, n in enumerate(x.bound))
    done = replace(x, name=f"{x.name}_{dim}", shape=shape, data=None)
    _rows(made, op, x, dim, listed, done)
    made.here.add(done)
    return done


def _rows(
    made: EnnRewrite, op: Op, x: Value, dim: int, places: Value, out: Value, outside: OutOfRangePolicy | None = None
) -> None:
    """Rows must lie densely, which bytes need not: those are moved as 16 bits."""
    if not byte(x):
        made.emit("index_select", op, out, self=made.planes(x), dim=dim, index=places, outside=outside)
        return
    wide, done = widen_to_int16(x), widen_to_int16(out)
    if x.data is not None:
        wide = replace(wide, data=x.data.astype(np.int16))
    else:
        made.emit(f"{PREFIX}CLIP", op, wide, inputs=[made.planes(x)], **UNLIMITED)
    made.emit("index_select", op, done, self=wide, dim=dim, index=places, outside=outside)
    made.emit(f"{PREFIX}CLIP", op, out, inputs=[done], **UNLIMITED)


@rule("TopK")
def _best(made: EnnRewrite, op: Op) -> bool:
    """The places of the largest, and what is there."""
    (x,), (values, places) = inputs_of(op), op.outputs
    if (
        x.q is not None
        or x.constant
        or places is None
        or places.dtype != np.dtype(np.int64)
        or not non_empty(x, places)
    ):
        return False
    given, dim = made.planes(x), len(x.bound) - 1
    made.flat("topk_places", op, places, self=given, k=int(op.args["k_dims"]), dim=dim, largest=True)
    if values is not None:
        made.flat("gather", op, values, self=given, dim=dim, index=places)
    return True


@rule("GATHER")
def _gather(made: EnnRewrite, op: Op) -> bool:
    (x, index), out, axis = inputs_of(op), result_of(op), int(op.args["axis"])
    if not non_empty(x, index, out) or index.q is not None or index.dtype not in _PLACES:
        return False
    axis %= len(x.bound)
    flat = (int(np.prod(index.bound)),)
    places = replace(index, name=f"{index.name}_flat", shape=flat, dim_order=(0,))
    if index.data is not None:
        places = replace(places, data=index.data.reshape(flat))
    elif index.bound != flat:
        made.emit("view", op, places, self=made.planes(index), size=list(flat))
    else:
        places = made.planes(index)
    shape = (*x.bound[:axis], *flat, *x.bound[axis + 1 :])
    done = replace(out, name=f"{out.name}_rows", shape=shape, dim_order=tuple(range(len(shape))))
    _rows(made, op, x, axis, places, done, OutOfRangePolicy(f"{op.kind} {out.name!r}", wrap=True))
    made.flat("view", op, out, self=done, size=list(out.bound))
    return True


@rule("DEPTH_TO_SPACE")
def _pixel_shuffle(made: EnnRewrite, op: Op) -> bool:
    """Blocks of channels become blocks of pixels."""
    (x,), out, block = inputs_of(op), result_of(op), int(op.args["block_size"])
    if not non_empty(x, out) or len(x.bound) != 4:
        return False
    batch, channels, high, wide = x.bound
    image, last = made.image(x), made.target(out, True)
    apart = (batch, high, wide, channels // block**2, block, block)
    turned = tuple(apart[d] for d in (0, 1, 4, 2, 5, 3))
    split, moved = (replace(image, name=f"{image.name}_{n}", shape=s, dim_order=tuple(range(6)), data=None) for n, s in
                    (("apart", apart), ("moved", turned)))  # fmt: skip
    made.emit("view", op, split, self=image, size=list(apart))
    made.emit("permute", op, moved, self=split, dims=[0, 1, 4, 2, 5, 3])
    made.emit("view", op, last, self=moved, size=list(last.bound))
    return True


@rule("SPLIT")
def _split(made: EnnRewrite, op: Op) -> bool:
    (x,), axis, at = inputs_of(op), int(op.args["axis"]), 0
    for out, size in zip(op.outputs, op.args["point"], strict=True):
        if out is not None:
            _slice(made, op, x, out, [at if d == axis else 0 for d in range(len(x.bound))])
        at += int(size)
    return True


@rule("PAD")
def _pad(made: EnnRewrite, op: Op) -> bool:
    (x,), out = inputs_of(op), result_of(op)
    if not non_empty(x):
        return False
    pads, rank = [int(n) for n in op.args["explicit_padding"]], len(x.bound)
    sides = [pads[:rank], pads[rank:]]
    if rank == 4 and made.any_pixels([x]):
        before, after = ([side[d] for d in TO_NHWC] for side in sides)
        made.made("pad", op, out, self=made.image(x), before=before, after=after, value=0.0)
    else:
        made.flat("pad", op, out, self=made.planes(x), before=sides[0], after=sides[1], value=0.0)
    return True
