"""Translation of QNN's data movement to core operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import round_to_fp16
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
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
from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.engine.int_rules import IndexGather, describes
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.numerics import Numerics

IndexLists = Sequence[Any]


def movable_input(rw: QnnRewrite, op: Op, x: Value, out: Value | None = None) -> Value | None:
    """The operand in the result's storage type, converted if necessary; None if that is not possible."""
    out = result_of(op) if out is None else out
    if not is_movable(x) or not is_movable(out) or not non_empty(x, out):
        return None
    if same_type(x, out):
        return x
    if not is_quantized(x, out):
        return None
    converted = rw.temporary(out, x.bound)
    rw.emit("qnn.Convert", op, converted, inputs=[x])
    return converted


def emit_result(rw: QnnRewrite, op: Op, x: Value, out: Value) -> bool:
    """Emit ``out`` as a reshape of ``x``."""
    rw.emit_reshape(op, x, out)
    return True


@rule("Reshape")
def _reshape(rw: QnnRewrite, op: Op) -> bool:
    x = movable_input(rw, op, op.args["inputs"][0])
    if x is None:
        return False
    rw.emit("core.view", op, result_of(op), self=x, size=list(result_of(op).bound))
    return True


@rule("Transpose")
def _transpose(rw: QnnRewrite, op: Op) -> bool:
    x = movable_input(rw, op, op.args["inputs"][0])
    if x is None:
        return False
    rw.emit("core.permute", op, result_of(op), self=x, dims=list(op.args["perm"]))
    return True


@rule("Concat", "Pack")
def _concat(rw: QnnRewrite, op: Op) -> bool:
    inputs, out = io_of(op)
    axis, parts = int(op.args["axis"]), []
    for value in inputs:
        x = movable_input(rw, op, value)
        if x is None:
            return False
        parts.append(x)
    if op.kind.endswith("Pack"):
        shape = [1 if d == axis else n for d, n in enumerate(out.bound)]
        parts = [rw.reshape(op, x, shape) for x in parts]
    rw.emit("core.cat", op, out, tensors=parts, dim=axis)
    return True


def _slices(rw: QnnRewrite, op: Op, starts: Sequence[int], sizes: Sequence[int], axis: int) -> bool:
    (x, *_), outs = op.args["inputs"], op.outputs
    if any(v is not None and not (is_movable(v) and same_type(x, v)) for v in outs) or not non_empty(x):
        return False
    for out, start, size in zip(outs, starts, sizes, strict=True):
        if out is None:
            continue
        shape = [size if d == axis else n for d, n in enumerate(x.bound)]
        part = rw.slice(op, x, [start if d == axis else 0 for d in range(len(x.bound))], shape)
        emit_result(rw, op, part, out)
    return True


@rule("Split")
def _split(rw: QnnRewrite, op: Op) -> bool:
    x, axis = op.args["inputs"][0], int(op.args["axis"])
    marks = [0, *(int(n) for n in op.args["split_index"]), x.bound[axis]]
    return _slices(rw, op, marks[:-1], np.diff(marks).tolist(), axis)


@rule("UnPack")
def _unpack(rw: QnnRewrite, op: Op) -> bool:
    x, axis = op.args["inputs"][0], int(op.args["axis"])
    return _slices(rw, op, range(x.bound[axis]), [1] * x.bound[axis], axis)


# ---------------------------------------------------------------------------------------------------- static gathers


def _ranges(op: Op) -> list[Array]:
    """Indices of a strided slice along each dimension; a dropped dimension keeps its first index."""
    x, tables = op.args["inputs"][0], []
    for axis, (begin, end, step) in enumerate(op.args["ranges"]):
        positions = np.arange(x.bound[axis])
        if op.args["shrink_axes"] >> axis & 1:
            tables.append(positions[begin : begin + 1 or None])
            continue
        first = None if op.args["begin_mask"] >> axis & 1 else begin
        last = None if op.args["end_mask"] >> axis & 1 or (step < 0 and end < 0) else end
        tables.append(positions[first:last:step])
    return tables


def _nearest(op: Op) -> list[Array]:
    x, out = op.args["inputs"][0], result_of(op)
    tables = [np.arange(n) for n in x.bound]
    center = 0.5 if op.args["half_pixel_centers"] else 0.0
    for d in (1, 2):
        n, m = x.bound[d], out.bound[d]
        tables[d] = np.clip(np.floor((np.arange(m) + center) * (n / m)).astype(np.int64), 0, n - 1)
    return tables


_MODES: dict[int, Any] = {1: "symmetric", 2: "reflect", 3: "edge"}


def _mirror_pad_indices(op: Op) -> list[Array]:
    if not op.args["scheme"]:
        raise IntRangeError("constant padding")
    pairs = [(int(a), int(b)) for a, b in op.args["pad_amount"]]
    mode = _MODES[op.args["scheme"]]
    return [np.pad(np.arange(n), pair, mode=mode) for n, pair in zip(op.args["inputs"][0].bound, pairs, strict=True)]


_INDEX_TABLES = {"StridedSlice": _ranges, "ResizeNearestNeighbor": _nearest, "Pad": _mirror_pad_indices}


@describes(*(PREFIX + name for name in _INDEX_TABLES))
def _gather_by_tables(op: Op, numerics: Numerics) -> IndexGather:
    return IndexGather(op.args["inputs"][0], _INDEX_TABLES[op.kind.removeprefix(PREFIX)](op))


def _is_range(listed: Array) -> bool:
    return listed.size > 0 and np.array_equal(listed, np.arange(listed[0], listed[0] + listed.size))


@rule("StridedSlice", "ResizeNearestNeighbor")
def _static_gather(rw: QnnRewrite, op: Op) -> bool:
    """A slice if all tables are consecutive, else a gather by tables."""
    source, out = op.args["inputs"][0], result_of(op)
    x = movable_input(rw, op, source)
    if x is None:
        return False
    tables = _INDEX_TABLES[op.kind.removeprefix(PREFIX)](op)
    shape = [table.size for table in tables]
    if all(_is_range(table) for table in tables):
        gathered = rw.slice(op, x, [int(table[0]) for table in tables], shape)
    else:
        args = {**op.args, "inputs": [x]}
        if args.get("shrink_axes"):
            ranges = enumerate(op.args["ranges"])
            args["ranges"] = [[b, b + 1, 1] if args["shrink_axes"] >> d & 1 else [b, e, s] for d, (b, e, s) in ranges]
            args["shrink_axes"] = 0
        gathered = rw.emit_temporary(op.kind, op, x, shape, **args)
    return emit_result(rw, op, gathered, out)


@rule("Tile")
def _tile(rw: QnnRewrite, op: Op) -> bool:
    out, source = result_of(op), op.args["inputs"][0]
    x = movable_input(rw, op, source)
    if x is None:
        return False
    interleaved = [n for size in x.bound for n in (1, size)]
    repeated = [n for size, count in zip(x.bound, op.args["multiples"], strict=True) for n in (count, size)]
    x = rw.reshape(op, x, interleaved)
    return emit_result(rw, op, rw.emit_temporary("core.expand", op, x, repeated, self=x, size=repeated), out)


def _fill(op: Op) -> float:
    """The padding value; for float tensors rounded to fp16."""
    value = np.asarray(op.args["pad_constant_value"], np.float32)
    return float(round_to_fp16(value) if is_float32(result_of(op)) else value)


@rule("Pad")
def _pad(rw: QnnRewrite, op: Op) -> bool:
    out, source = result_of(op), op.args["inputs"][0]
    x = movable_input(rw, op, source)
    if x is None:
        return False
    pairs = [(int(a), int(b)) for a, b in op.args["pad_amount"]]
    if op.args["scheme"]:
        rw.emit(op.kind, op, out, **{**op.args, "inputs": [x]})
        return True
    rw.emit("core.pad", op, out, self=x, before=[a for a, _ in pairs], after=[b for _, b in pairs],
              value=_fill(op))  # fmt: skip
    return True


# ----------------------------------------------------------------------------------------------------------- blocks


def _emit_permuted_blocks(rw: QnnRewrite, op: Op, shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Split into dimensions, permute, and merge."""
    source, out = op.args["inputs"][0], result_of(op)
    x = movable_input(rw, op, source)
    if x is None:
        return False
    return emit_result(rw, op, rw.transpose(op, rw.reshape(op, x, shape), dims), out)


@rule("ChannelShuffle")
def _shuffle(rw: QnnRewrite, op: Op) -> bool:
    shape, axis, groups = op.args["inputs"][0].bound, int(op.args["axis"]), int(op.args["num_groups"])
    split = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    dims = list(range(len(split)))
    dims[axis], dims[axis + 1] = axis + 1, axis
    return _emit_permuted_blocks(rw, op, split, dims)


@rule("DepthToSpace")
def _depth_to_space(rw: QnnRewrite, op: Op) -> bool:
    batch, high, wide, channels = op.args["inputs"][0].bound
    block_h, block_w = op.args["block_size"]
    out_channels = channels // (block_h * block_w)
    if op.args["mode"]:
        return _emit_permuted_blocks(rw, op, (batch, high, wide, out_channels, block_h, block_w), (0, 1, 4, 2, 5, 3))
    return _emit_permuted_blocks(rw, op, (batch, high, wide, block_h, block_w, out_channels), (0, 1, 3, 2, 4, 5))


@rule("SpaceToDepth")
def _space_to_depth(rw: QnnRewrite, op: Op) -> bool:
    batch, high, wide, channels = op.args["inputs"][0].bound
    down, block_w = op.args["block_size"]
    split = (batch, high // down, down, wide // block_w, block_w, channels)
    return _emit_permuted_blocks(rw, op, split, (0, 1, 3, 5, 2, 4) if op.args["mode"] else (0, 1, 3, 2, 4, 5))
