"""QNN's operators that only move elements, as the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    alike,
    constant,
    ends,
    movable,
    real,
    result,
    rule,
    some,
    whole,
)  # fmt: skip
from edgewright.ir.graph import Array, Op, Value

Lists = Sequence[Any]


def moved(made: QnnRewrite, op: Op, x: Value, out: Value | None = None) -> Value | None:
    """What is moved, stored as the result is; None if the engine cannot have it so."""
    out = result(op) if out is None else out
    if not movable(x) or not movable(out) or not some(x, out):
        return None
    if alike(x, out):
        return x
    if not whole(x, out):
        return None
    changed = made.temporary(out, x.bound)
    made.emit("qnn.Convert", op, changed, inputs=[x])
    return changed


def give(made: QnnRewrite, op: Op, x: Value, out: Value) -> bool:
    """The result is what is there, in its own shape; half precision stays what it is."""
    made.finish_as(op, x, out)
    _as_precise(made, x, out)
    return True


def _as_precise(made: QnnRewrite, x: Value, out: Value) -> None:
    if made.halves.get(id(x)) is x and x is not None:
        made.halves[id(out)] = out


@rule("Reshape")
def _reshape(made: QnnRewrite, op: Op) -> bool:
    source = op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None:
        return False
    made.emit("view", op, result(op), self=x, size=list(result(op).bound))
    _as_precise(made, source, result(op))
    return True


@rule("Transpose")
def _transpose(made: QnnRewrite, op: Op) -> bool:
    source = op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None:
        return False
    made.emit("permute", op, result(op), self=x, dims=list(op.args["perm"]))
    _as_precise(made, source, result(op))
    return True


@rule("Concat", "Pack")
def _concat(made: QnnRewrite, op: Op) -> bool:
    given, out = ends(op)
    axis, parts = int(op.args["axis"]), []
    for value in given:
        x = moved(made, op, value)
        if x is None:
            return False
        parts.append(x)
    if op.kind.endswith("Pack"):
        shape = [1 if d == axis else n for d, n in enumerate(out.bound)]
        parts = [made.view(op, x, shape) for x in parts]
    made.emit("cat", op, out, tensors=parts, dim=axis)
    if all(made.halves.get(id(v)) is v for v in given):
        made.halves[id(out)] = out
    return True


def _slices(made: QnnRewrite, op: Op, starts: Sequence[int], sizes: Sequence[int], axis: int) -> bool:
    (x, *_), outs = op.args["inputs"], op.outputs
    if any(v is not None and not (movable(v) and alike(x, v)) for v in outs) or not some(x):
        return False
    for out, start, size in zip(outs, starts, sizes, strict=True):
        if out is None:
            continue
        shape = [size if d == axis else n for d, n in enumerate(x.bound)]
        part = made.cut(op, x, [start if d == axis else 0 for d in range(len(x.bound))], shape)
        give(made, op, part, out)
    return True


@rule("Split")
def _split(made: QnnRewrite, op: Op) -> bool:
    x, axis = op.args["inputs"][0], int(op.args["axis"])
    marks = [0, *(int(n) for n in op.args["split_index"]), x.bound[axis]]
    return _slices(made, op, marks[:-1], np.diff(marks).tolist(), axis)


@rule("UnPack")
def _unpack(made: QnnRewrite, op: Op) -> bool:
    x, axis = op.args["inputs"][0], int(op.args["axis"])
    return _slices(made, op, range(x.bound[axis]), [1] * x.bound[axis], axis)


# -------------------------------------------------------------------------------------------------- lists of places


def picked(made: QnnRewrite, op: Op, x: Value, places: Sequence[Array], out: Value) -> bool:
    """The elements at places that are known now, along each dimension."""
    for axis, listed in enumerate(places):
        listed = np.asarray(listed, np.int64)
        first, many = (int(listed[0]), listed.size) if listed.size else (0, 0)
        if np.array_equal(listed, np.arange(first, first + many)):
            shape = [many if d == axis else n for d, n in enumerate(x.bound)]
            x = made.cut(op, x, [first if d == axis else 0 for d in range(len(shape))], shape)
        else:
            shape = [listed.size if d == axis else n for d, n in enumerate(x.bound)]
            x = made.then("index_select", op, x, shape, self=x, dim=axis, index=constant("places", listed))
    return give(made, op, x, out)


@rule("StridedSlice")
def _slice(made: QnnRewrite, op: Op) -> bool:
    out, source = result(op), op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None:
        return False
    places = []
    for axis, (begin, end, step) in enumerate(op.args["ranges"]):
        if op.args["shrink_axes"] >> axis & 1:
            places.append(np.arange(x.bound[axis])[begin : begin + 1 or None])
            continue
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        places.append(np.arange(x.bound[axis])[first:last:step])
    return picked(made, op, x, places, out)


@rule("ResizeNearestNeighbor")
def _nearest(made: QnnRewrite, op: Op) -> bool:
    out, source = result(op), op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None:
        return False
    places = [np.arange(n) for n in x.bound]
    middle = 0.5 if op.args["half_pixel_centers"] else 0.0
    for d in (1, 2):
        n, m = x.bound[d], out.bound[d]
        places[d] = np.clip(np.floor((np.arange(m) + middle) * (n / m)).astype(np.int64), 0, n - 1)
    return picked(made, op, x, places, out)


@rule("Tile")
def _tile(made: QnnRewrite, op: Op) -> bool:
    out, source = result(op), op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None:
        return False
    apart = [n for size in x.bound for n in (1, size)]
    wide = [n for size, many in zip(x.bound, op.args["multiples"], strict=True) for n in (many, size)]
    x = made.view(op, x, apart)
    return give(made, op, made.then("expand", op, x, wide, self=x, size=wide), out)


_MODES: dict[int, Any] = {1: "symmetric", 2: "reflect", 3: "edge"}


@rule("Pad")
def _pad(made: QnnRewrite, op: Op) -> bool:
    out, source = result(op), op.args["inputs"][0]
    x = moved(made, op, source)
    if x is None or not (whole(x) or real(x)):
        return False
    pairs = [(int(a), int(b)) for a, b in op.args["pad_amount"]]
    if op.args["scheme"]:
        mode = _MODES[op.args["scheme"]]
        return picked(
            made, op, x, [np.pad(np.arange(n), p, mode=mode) for n, p in zip(x.bound, pairs, strict=True)], out
        )
    made.emit("pad", op, out, self=x, before=[a for a, _ in pairs], after=[b for _, b in pairs],
              value=float(op.args["pad_constant_value"]))  # fmt: skip
    return True


# ----------------------------------------------------------------------------------------------------------- blocks


def _regrouped(made: QnnRewrite, op: Op, shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Cut into dimensions, turned, and put together again."""
    source, out = op.args["inputs"][0], result(op)
    x = moved(made, op, source)
    if x is None:
        return False
    return give(made, op, made.turned(op, made.view(op, x, shape), dims), out)


@rule("ChannelShuffle")
def _shuffle(made: QnnRewrite, op: Op) -> bool:
    shape, axis, groups = op.args["inputs"][0].bound, int(op.args["axis"]), int(op.args["num_groups"])
    apart = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    dims = list(range(len(apart)))
    dims[axis], dims[axis + 1] = axis + 1, axis
    return _regrouped(made, op, apart, dims)


@rule("DepthToSpace")
def _to_space(made: QnnRewrite, op: Op) -> bool:
    batch, high, wide, channels = op.args["inputs"][0].bound
    down, along = op.args["block_size"]
    each = channels // (down * along)
    if op.args["mode"]:
        return _regrouped(made, op, (batch, high, wide, each, down, along), (0, 1, 4, 2, 5, 3))
    return _regrouped(made, op, (batch, high, wide, down, along, each), (0, 1, 3, 2, 4, 5))


@rule("SpaceToDepth")
def _to_depth(made: QnnRewrite, op: Op) -> bool:
    batch, high, wide, channels = op.args["inputs"][0].bound
    down, along = op.args["block_size"]
    apart = (batch, high // down, down, wide // along, along, channels)
    return _regrouped(made, op, apart, (0, 1, 3, 5, 2, 4) if op.args["mode"] else (0, 1, 3, 2, 4, 5))
