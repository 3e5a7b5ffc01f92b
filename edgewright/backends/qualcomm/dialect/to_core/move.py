"""Translation of QNN's data movement, gather, scatter, argmax and top-k to core operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.dtypes import round_to_fp16
from edgewright.backends.qualcomm.dialect.table import PREFIX
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    is_movable,
    is_quantized,
    make_constant,
    non_empty,
    result_of,
    rule,
    same_type,
)  # fmt: skip
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op, Value
from edgewright.ir.int_arithmetic import IntRangeError
from edgewright.ir.int_rules import IndexGather, describes
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


def _is_index(index: Value) -> bool:
    return index.q is None and str(index.dtype) in ("int32", "int64") and non_empty(index)


def _strip_operands(rw: QnnRewrite, op: Op, *values: Value) -> list[Value] | None:
    """Operands in the result's scale, as tensors without scale; None if that is not possible."""
    stripped = []
    for value in values:
        x = movable_input(rw, op, value)
        x = None if x is None else rw.strip_qparams(op, x)
        if x is None:
            return None
        stripped.append(x)
    return stripped


def _emit_stored(rw: QnnRewrite, op: Op, x: Value) -> bool:
    """Emit the result from its stored elements."""
    return emit_result(rw, op, x, result_of(op))


@rule("Gather")
def _gather(rw: QnnRewrite, op: Op) -> bool:
    source, index = op.args["inputs"]
    operands, axis = _strip_operands(rw, op, source) if _is_index(index) else None, int(op.args["axis"])
    if operands is None:
        return False
    x, flat = operands[0], rw.reshape(op, index, (element_count(index.bound),))
    shape = [flat.bound[0] if d == axis else n for d, n in enumerate(x.bound)]
    outside = OutOfRangePolicy(f"{op.kind} {result_of(op).name!r}")
    gathered = rw.emit_temporary("core.index_select", op, x, shape, self=x, dim=axis, index=flat, outside=outside)
    return _emit_stored(rw, op, gathered)


@rule("GatherElements")
def _gather_elements(rw: QnnRewrite, op: Op) -> bool:
    (source, index), out = io_of(op)
    operands = _strip_operands(rw, op, source) if _is_index(index) else None
    if operands is None:
        return False
    zero = 0 if out.q is None else int(np.asarray(out.q.zero_point))
    args = {"dim": int(op.args["axis"]), "index": index, "outside": OutOfRangePolicy(number=zero)}
    return _emit_stored(rw, op, rw.emit_temporary("core.gather", op, operands[0], out.bound, self=operands[0], **args))


@rule("ScatterElements")
def _scatter_elements(rw: QnnRewrite, op: Op) -> bool:
    (source, index, updates), out = io_of(op)
    operands = _strip_operands(rw, op, source, updates) if _is_index(index) and not op.args["reduction"] else None
    if operands is None:
        return False
    x, src = operands
    args = {"dim": int(op.args["axis"]), "index": index, "outside": OutOfRangePolicy()}
    return _emit_stored(rw, op, rw.emit_temporary("core.scatter", op, x, out.bound, self=x, src=src, **args))


@rule("ScatterNd")
def _scatter_nd(rw: QnnRewrite, op: Op) -> bool:
    """Scatter rows into a matrix whose indexed dimensions are flattened to one."""
    (source, index, updates), out = io_of(op)
    indexed_dims = index.bound[-1] if index.bound else 0
    if not _is_index(index) or op.args["reduction"] or indexed_dims == 0:
        return False
    operands = _strip_operands(rw, op, source, updates)
    if operands is None:
        return False
    sizes = out.bound[:indexed_dims]
    flat_index = (
        _constant_flat_index(index.data, sizes) if index.data is not None else _emit_flat_index(rw, op, index, sizes)
    )
    inner = element_count(out.bound[indexed_dims:])
    x = rw.reshape(op, operands[0], (element_count(sizes), inner))
    rows = rw.reshape(op, operands[1], (flat_index.bound[0], inner))
    args = {"indices": [flat_index], "values": rows, "accumulate": False, "outside": OutOfRangePolicy()}
    return _emit_stored(rw, op, rw.emit_temporary("core.index_put", op, x, x.bound, self=x, **args))


def _constant_flat_index(data: Array, sizes: Sequence[int]) -> Value:
    """Flatten constant multi-dimensional indices; -1 where one is out of range."""
    parts = np.moveaxis(data, -1, 0).astype(np.int64).reshape(len(sizes), -1)
    flat, inside = np.zeros(parts.shape[1], np.int64), np.ones(parts.shape[1], bool)
    for part, n in zip(parts, sizes, strict=True):
        flat, inside = flat * n + part, inside & (part >= 0) & (part < n)
    return make_constant("places", np.where(inside, flat, -1))


def _emit_flat_index(rw: QnnRewrite, op: Op, index: Value, sizes: Sequence[int]) -> Value:
    """Flatten multi-dimensional indices at run time; -1 where one is out of range."""
    rows, dims = element_count(index.bound) // len(sizes), len(sizes)
    flat = rw.reshape(op, index, (rows, dims))
    if dims == 1:
        return rw.reshape(op, flat, (rows,))
    int64_value = replace(index, dtype=np.dtype(np.int64), data=None)
    flat = (
        rw.emit_temporary("core.cast", op, int64_value, flat.bound, self=flat)
        if index.dtype != int64_value.dtype
        else flat
    )
    shape, flat_index, in_range = (rows, 1), None, None

    def emit_binary(kind: str, a: Value, b: Value, like: Value = int64_value) -> Value:
        return rw.emit_temporary(kind, op, like, shape, self=a, other=b)

    bool_value, zero = replace(int64_value, dtype=np.dtype(bool)), make_constant("nothing", np.asarray([0], np.int64))
    for d, n in enumerate(sizes):
        part, size = rw.slice(op, flat, [0, d], shape), make_constant("size", np.asarray([n], np.int64))
        valid = emit_binary(
            "core.logical_and",
            emit_binary("core.ge", part, zero, bool_value),
            emit_binary("core.lt", part, size, bool_value),
            bool_value,
        )
        in_range = valid if in_range is None else emit_binary("core.logical_and", in_range, valid, bool_value)
        flat_index = (
            part if flat_index is None else emit_binary("core.add", emit_binary("core.mul", flat_index, size), part)
        )
    invalid = make_constant("outside", np.asarray([-1], np.int64))
    selected = rw.emit_temporary(
        "core.where", op, int64_value, shape, condition=in_range, self=flat_index, other=invalid
    )
    return rw.reshape(op, selected, (rows,))


# ------------------------------------------------------------------------------------------------- argmax and top-k


@rule("Argmax", "Argmin")
def _argmax(rw: QnnRewrite, op: Op) -> bool:
    (x,), out = io_of(op)
    operand = rw.round_half(op, x) if is_float32(x) else rw.strip_qparams(op, x)
    if operand is None or not non_empty(x, out):
        return False
    indices = rw.temporary(out, out.bound, dtype=np.dtype(np.int64))
    rw.emit("core.argmax" if op.kind.endswith("Argmax") else "core.argmin", op, indices, self=operand,
              dim=int(op.args["axis"]), keepdim=bool(op.args["keep_dims"]))  # fmt: skip
    rw.emit("core.cast", op, out, self=indices)
    return True


@rule("TopK")
def _top_k(rw: QnnRewrite, op: Op) -> bool:
    source, (values, indices) = op.args["inputs"][0], op.outputs
    x = source if values is None else movable_input(rw, op, source, values)
    if x is None:
        return False
    operand = rw.round_half(op, x) if is_float32(x) else rw.strip_qparams(op, x)
    if operand is None or not non_empty(x):
        return False
    last, k = len(x.bound) - 1, int(op.args["k"])
    shape = (*x.bound[:-1], k)
    top_indices = Value(f"{x.name}_places", np.dtype(np.int64), shape, tuple(range(len(shape))))
    rw.emit("core.topk_indices", op, top_indices, self=operand, k=k, dim=last, largest=bool(op.args["largest"]))
    if indices is not None:
        rw.emit("core.cast", op, indices, self=top_indices)
    if values is not None:
        top_values = rw.emit_temporary("core.gather", op, operand, shape, self=operand, dim=last, index=top_indices)
        rw.emit_reshape(op, top_values, values)
    return True
