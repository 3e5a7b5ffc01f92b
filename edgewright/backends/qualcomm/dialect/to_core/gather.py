"""Translation of QNN's gather, scatter, argmax and top-k to core operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgewright.backends.qualcomm.dialect.evaluate import subject_of, zero_point_of
from edgewright.backends.qualcomm.dialect.to_core.move import emit_result, movable_input
from edgewright.backends.qualcomm.dialect.to_core.rewrite import (
    QnnRewrite,
    element_count,
    io_of,
    is_float32,
    make_constant,
    non_empty,
    result_of,
    rule,
    same_type,
)
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Array, Op, Value


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
    outside = OutOfRangePolicy(subject_of(op))
    gathered = rw.emit_temporary("core.index_select", op, x, shape, self=x, dim=axis, index=flat, outside=outside)
    return _emit_stored(rw, op, gathered)


@rule("GatherElements")
def _gather_elements(rw: QnnRewrite, op: Op) -> bool:
    (source, index), out = io_of(op)
    operands = _strip_operands(rw, op, source) if _is_index(index) else None
    if operands is None or operands[0].constant:
        return False
    args = {"dim": int(op.args["axis"]), "index": index, "outside": OutOfRangePolicy(number=zero_point_of(out))}
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
    if operand is None or operand.constant or not non_empty(x, out) or not x.bound:
        return False
    indices = rw.temporary(out, out.bound, dtype=np.dtype(np.int64))
    rw.emit("core.argmax" if op.kind.endswith("Argmax") else "core.argmin", op, indices, self=operand,
              dim=int(op.args["axis"]), keepdim=bool(op.args["keep_dims"]))  # fmt: skip
    rw.emit("core.cast", op, out, self=indices)
    return True


@rule("TopK")
def _top_k(rw: QnnRewrite, op: Op) -> bool:
    x, (values, indices) = op.args["inputs"][0], op.outputs
    if values is not None and not same_type(x, values):
        return False
    operand = rw.round_half(op, x) if is_float32(x) else rw.strip_qparams(op, x)
    if operand is None or operand.constant or not non_empty(x) or not x.bound:
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
