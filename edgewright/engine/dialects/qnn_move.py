"""QNN's operators that only move elements, as the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.engine.dialects.qnn_rewrite import (
    QnnRewrite,
    io_of,
    is_float32,
    is_movable,
    is_quantized,
    non_empty,
    result_of,
    rule,
    same_type,
)  # fmt: skip
from edgewright.engine.dialects.static_gather import static_gather_rule
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.qnn.dtypes import half
from edgewright.ir.qnn.table import PREFIX

IndexLists = Sequence[Any]


def movable_input(made: QnnRewrite, op: Op, x: Value, out: Value | None = None) -> Value | None:
    """What is moved, stored as the result is; None if the engine cannot have it so."""
    out = result_of(op) if out is None else out
    if not is_movable(x) or not is_movable(out) or not non_empty(x, out):
        return None
    if same_type(x, out):
        return x
    if not is_quantized(x, out):
        return None
    changed = made.temporary(out, x.bound)
    made.emit("qnn.Convert", op, changed, inputs=[x])
    return changed


def emit_result(made: QnnRewrite, op: Op, x: Value, out: Value) -> bool:
    """The result is what is there, in its own shape."""
    made.finish_as(op, x, out)
    return True


@rule("Reshape")
def _reshape(made: QnnRewrite, op: Op) -> bool:
    x = movable_input(made, op, op.args["inputs"][0])
    if x is None:
        return False
    made.emit("view", op, result_of(op), self=x, size=list(result_of(op).bound))
    return True


@rule("Transpose")
def _transpose(made: QnnRewrite, op: Op) -> bool:
    x = movable_input(made, op, op.args["inputs"][0])
    if x is None:
        return False
    made.emit("permute", op, result_of(op), self=x, dims=list(op.args["perm"]))
    return True


@rule("Concat", "Pack")
def _concat(made: QnnRewrite, op: Op) -> bool:
    given, out = io_of(op)
    axis, parts = int(op.args["axis"]), []
    for value in given:
        x = movable_input(made, op, value)
        if x is None:
            return False
        parts.append(x)
    if op.kind.endswith("Pack"):
        shape = [1 if d == axis else n for d, n in enumerate(out.bound)]
        parts = [made.view(op, x, shape) for x in parts]
    made.emit("cat", op, out, tensors=parts, dim=axis)
    return True


def _slices(made: QnnRewrite, op: Op, starts: Sequence[int], sizes: Sequence[int], axis: int) -> bool:
    (x, *_), outs = op.args["inputs"], op.outputs
    if any(v is not None and not (is_movable(v) and same_type(x, v)) for v in outs) or not non_empty(x):
        return False
    for out, start, size in zip(outs, starts, sizes, strict=True):
        if out is None:
            continue
        shape = [size if d == axis else n for d, n in enumerate(x.bound)]
        part = made.cut(op, x, [start if d == axis else 0 for d in range(len(x.bound))], shape)
        emit_result(made, op, part, out)
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


def _ranges(op: Op) -> list[Array]:
    """Which elements a slice takes along each dimension; of one that is left out, the first of its range."""
    x, found = op.args["inputs"][0], []
    for axis, (begin, end, step) in enumerate(op.args["ranges"]):
        every = np.arange(x.bound[axis])
        if op.args["shrink_axes"] >> axis & 1:
            found.append(every[begin : begin + 1 or None])
            continue
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        found.append(every[first:last:step])
    return found


def _nearest(op: Op) -> list[Array]:
    x, out = op.args["inputs"][0], result_of(op)
    found = [np.arange(n) for n in x.bound]
    middle = 0.5 if op.args["half_pixel_centers"] else 0.0
    for d in (1, 2):
        n, m = x.bound[d], out.bound[d]
        found[d] = np.clip(np.floor((np.arange(m) + middle) * (n / m)).astype(np.int64), 0, n - 1)
    return found


_MODES: dict[int, Any] = {1: "symmetric", 2: "reflect", 3: "edge"}


def _mirrored(op: Op) -> list[Array]:
    if not op.args["scheme"]:
        raise IntRangeError("a number around it")
    pairs = [(int(a), int(b)) for a, b in op.args["pad_amount"]]
    mode = _MODES[op.args["scheme"]]
    return [np.pad(np.arange(n), pair, mode=mode) for n, pair in zip(op.args["inputs"][0].bound, pairs, strict=True)]


_LISTS = {"StridedSlice": _ranges, "ResizeNearestNeighbor": _nearest, "Pad": _mirrored}
for _name, _lists in _LISTS.items():
    static_gather_rule(PREFIX + _name)(lambda op, lists=_lists: (op.args["inputs"][0], lists(op)))  # type: ignore[misc]


def _steady(listed: Array) -> bool:
    return listed.size > 0 and np.array_equal(listed, np.arange(listed[0], listed[0] + listed.size))


@rule("StridedSlice", "ResizeNearestNeighbor")
def _picked(made: QnnRewrite, op: Op) -> bool:
    """The elements at places that are known now, along each dimension."""
    source, out = op.args["inputs"][0], result_of(op)
    x = movable_input(made, op, source)
    if x is None:
        return False
    lists = _LISTS[op.kind.removeprefix(PREFIX)](op)
    shape = [listed.size for listed in lists]
    if all(_steady(listed) for listed in lists):
        last = made.cut(op, x, [int(listed[0]) for listed in lists], shape)
    else:
        args = {**op.args, "inputs": [x]}
        if args.get("shrink_axes"):
            ranges = enumerate(op.args["ranges"])
            args["ranges"] = [[b, b + 1, 1] if args["shrink_axes"] >> d & 1 else [b, e, s] for d, (b, e, s) in ranges]
            args["shrink_axes"] = 0
        last = made.then(op.kind, op, x, shape, **args)
    return emit_result(made, op, last, out)


@rule("Tile")
def _tile(made: QnnRewrite, op: Op) -> bool:
    out, source = result_of(op), op.args["inputs"][0]
    x = movable_input(made, op, source)
    if x is None:
        return False
    apart = [n for size in x.bound for n in (1, size)]
    wide = [n for size, many in zip(x.bound, op.args["multiples"], strict=True) for n in (many, size)]
    x = made.view(op, x, apart)
    return emit_result(made, op, made.then("expand", op, x, wide, self=x, size=wide), out)


def _fill(op: Op) -> float:
    """What a border is filled with; real numbers are in half precision."""
    given = np.asarray(op.args["pad_constant_value"], np.float32)
    return float(half(given) if is_float32(result_of(op)) else given)


@rule("Pad")
def _pad(made: QnnRewrite, op: Op) -> bool:
    out, source = result_of(op), op.args["inputs"][0]
    x = movable_input(made, op, source)
    if x is None:
        return False
    pairs = [(int(a), int(b)) for a, b in op.args["pad_amount"]]
    if op.args["scheme"]:
        made.emit(op.kind, op, out, **{**op.args, "inputs": [x]})
        return True
    made.emit("pad", op, out, self=x, before=[a for a, _ in pairs], after=[b for _, b in pairs],
              value=_fill(op))  # fmt: skip
    return True


# ----------------------------------------------------------------------------------------------------------- blocks


def _regrouped(made: QnnRewrite, op: Op, shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Cut into dimensions, turned, and put together again."""
    source, out = op.args["inputs"][0], result_of(op)
    x = movable_input(made, op, source)
    if x is None:
        return False
    return emit_result(made, op, made.turned(op, made.view(op, x, shape), dims), out)


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
