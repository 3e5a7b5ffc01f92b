"""Lowering of gather and scatter. Indices are int32; data keeps its layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import INT32, QnnLowering, dequantize_constant, output_of, quantize_per_tensor
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity


def embedding(low: QnnLowering, op: Op) -> None:
    """Row gather; a quantized table is requantized to the output's parameters at compile time."""
    weight, out = op.args["weight"], output_of(op)
    table = low.get(weight)
    if out.q is not None:
        table = low.constant(quantize_per_tensor(dequantize_constant(weight), out.q), out.q)
    _gather(low, op, table, low.get(op.args["indices"]), 0)


def _gather(low: QnnLowering, op: Op, source: Value, indices: Value, axis: int) -> None:
    """Gather slices along ``axis`` and convert to the output's parameters. bool is gathered as int32, because the HTP
    cannot gather bool."""
    out, is_bool = output_of(op), source.dtype == np.bool_
    source = _bool_to_int32(low, source) if is_bool else source
    index_list = low.reshape(indices, indices.bound or (1,))
    shape = [*source.bound[:axis], *index_list.bound, *source.bound[axis + 1 :]]
    result = low.temporary(shape, source)
    low.node("Gather", [source, index_list], result, axis=np.int32(axis))
    if is_bool:
        numbers, result = result, low.plain_temporary(shape, np.bool_)
        low.node("Cast", [numbers], result)
    low.alias(out, identity(len(out.shape)), low.reshape(low.requantize_like(result, out), out.bound))


def _bool_to_int32(low: QnnLowering, value: Value) -> Value:
    """bool to int32."""
    if value.data is not None:
        return low.constant(value.data.astype(INT32))
    result = low.plain_temporary(value.bound)
    low.node("Cast", [value], result)
    return result


def index_select(low: QnnLowering, op: Op) -> None:
    x = op.args["self"]
    _gather(low, op, low.get(x), low.get(op.args["index"]), op.args["dim"] % len(x.shape))


def index(low: QnnLowering, op: Op) -> None:
    """Indexing of adjacent dimensions, as one index into these dimensions flattened."""
    x, index_args = op.args["self"], op.args["indices"]
    front, count = indexed_dims(index_args)
    sizes = x.bound[front : front + count]
    flat = low.reshape(low.get(x), [*x.bound[:front], math.prod(sizes), *x.bound[front + count :]])
    flat_index: Value | None = None
    for index_value, size in zip(index_args[front : front + count], sizes, strict=True):
        at = _wrap_negative(low, index_value, size)
        flat_index = at if flat_index is None else _add(low, _scale_index(low, flat_index, size), at)
    assert flat_index is not None
    _gather(low, op, flat, flat_index, front)


def indexed_dims(index_args: Sequence[Value | None]) -> tuple[int, int]:
    """First indexed dimension, and the number of indexed dimensions."""
    where = [d for d, v in enumerate(index_args) if v is not None]
    return where[0], len(where)


def _wrap_negative(low: QnnLowering, index_value: Value, size: int) -> Value:
    """Normalize negative indices."""
    source = low.get(index_value)
    if source.constant:
        assert source.data is not None
        return low.constant(np.where(source.data < 0, source.data + size, source.data).astype(INT32))
    shape = source.bound or (1,)
    source = low.reshape(source, shape)
    is_negative = low.plain_temporary(shape, np.bool_)
    low.node("ElementWiseLess", [source, low.constant(np.zeros((1,), INT32))], is_negative)
    wrapped = _add(low, source, low.constant(np.full((1,), size, INT32)))
    result = low.plain_temporary(shape)
    low.node("ElementWiseSelect", [is_negative, wrapped, source], result)
    return result


def _scale_index(low: QnnLowering, source: Value, size: int) -> Value:
    return _fold_or_emit(low, "ElementWiseMultiply", np.multiply, source, low.constant(np.full((1,), size, INT32)))


def _add(low: QnnLowering, a: Value, b: Value) -> Value:
    return _fold_or_emit(low, "ElementWiseAdd", np.add, a, b)


def _fold_or_emit(low: QnnLowering, kind: str, function: Any, a: Value, b: Value) -> Value:
    if a.data is not None and b.data is not None:
        return low.constant(np.asarray(function(a.data, b.data), INT32))
    result = low.plain_temporary(np.broadcast_shapes(a.bound, b.bound))
    low.node(kind, [a, b], result)
    return result


def gather(low: QnnLowering, op: Op) -> None:
    """Element gather."""
    x, out, indices = op.args["self"], output_of(op), low.get(op.args["index"])
    inputs = [low.get(x), low.reshape(indices, indices.bound or (1,))]
    result = low.temporary(inputs[1].bound, inputs[0])
    low.node("GatherElements", inputs, result, axis=op.args["dim"] % len(x.shape))
    low.alias(out, identity(len(out.shape)), low.reshape(low.requantize_like(result, out), out.bound))


def scatter(low: QnnLowering, op: Op) -> None:
    """Element scatter."""
    x, indices, out = op.args["self"], op.args["index"], output_of(op)
    if op.kind == "scatter_value":
        filled = np.full(indices.bound, float(op.args["value"]), np.float32)
        dtype = np.float32 if x.dtype is None else x.dtype
        values = low.constant(filled.astype(dtype) if x.q is None else quantize_per_tensor(filled, out.q), out.q)
    else:
        values = low.requantize_like(_leading_slice(low, low.get(op.args["src"]), indices.bound), out)
    inputs = [low.requantize_like(low.get(x), out), low.get(indices), values]
    axis = op.args["dim"] % len(x.shape)
    low.finish(op, identity(len(out.shape)), "ScatterElements", inputs, axis=axis, reduction=0)


def _leading_slice(low: QnnLowering, source: Value, shape: Sequence[int]) -> Value:
    """Leading slice of a given shape."""
    if tuple(shape) == source.bound:
        return source
    if source.data is not None:
        return low.constant(np.ascontiguousarray(source.data[tuple(slice(n) for n in shape)]), source.q)
    result = low.temporary(shape, source)
    low.node("StridedSlice", [source], result, ranges=np.array([[0, n, 1] for n in shape], np.int32))
    return result


def index_put(low: QnnLowering, op: Op) -> None:
    """ScatterNd; dimensions before the indexed ones get all their indices."""
    x, index_args, out = op.args["self"], op.args["indices"], output_of(op)
    front, count = indexed_dims(index_args)
    indices = [_wrap_negative(low, v, x.bound[front + i]) for i, v in enumerate(index_args[front : front + count])]
    common = np.broadcast_shapes(*(p.bound or (1,) for p in indices))
    batch = (*x.bound[:front], *common)
    ranges = [
        np.arange(n, dtype=INT32).reshape(-1, *(1,) * (len(batch) - d - 1)) for d, n in enumerate(x.bound[:front])
    ]
    columns = [*(low.constant(e) for e in ranges), *indices]
    at = _stack_indices(low, [_broadcast(low, c, batch) for c in columns], batch)
    rest = x.bound[front + count :]
    values = _broadcast(low, low.requantize_like(low.get(op.args["values"]), out), (*batch, *rest))
    low.finish(op, identity(len(out.shape)), "ScatterNd", [low.requantize_like(low.get(x), out), at, values])


def _stack_indices(low: QnnLowering, columns: list[Value], batch: Sequence[int]) -> Value:
    """Stack the indices of several dimensions in the last dimension."""
    constants = [c.data for c in columns if c.data is not None]
    if len(constants) == len(columns):
        return low.constant(np.ascontiguousarray(np.stack(constants, -1), INT32))
    parts = [low.reshape(column, (*batch, 1)) for column in columns]
    if len(parts) == 1:
        return parts[0]
    result = low.plain_temporary((*batch, len(columns)))
    low.node("Concat", parts, result, axis=len(batch))
    return result


def _broadcast(low: QnnLowering, source: Value, shape: Sequence[int]) -> Value:
    """Broadcast a tensor explicitly."""
    if source.data is not None:
        return low.constant(np.ascontiguousarray(np.broadcast_to(source.data, tuple(shape))), source.q)
    flat_index = low.reshape(source, (1,) * (len(shape) - len(source.bound)) + source.bound)
    repeats = [m // n for m, n in zip(shape, flat_index.bound, strict=True)]
    if math.prod(repeats) == 1:
        return flat_index
    result = low.temporary(shape, source)
    low.node("Tile", [flat_index], result, multiples=np.asarray(repeats, np.uint32))
    return result


def slice_scatter(low: QnnLowering, op: Op) -> None:
    """``slice_scatter`` and ``select_scatter``; the op table's reference determines the written indices."""
    x, out = op.args["self"], output_of(op)
    dim = op.args["dim"] % len(x.shape)
    reading = {n: v for n, v in op.args.items() if n != "src"}
    kind = "slice" if op.kind == "slice_scatter" else "select"
    indices = np.atleast_1d(OPS[kind].call({**reading, "self": np.arange(x.bound[dim]), "dim": 0})[0])
    grid = np.meshgrid(*(np.arange(n) for n in x.bound[:dim]), indices, indexing="ij")
    at = low.constant(np.ascontiguousarray(np.stack(grid, -1), INT32))
    shape = (*x.bound[:dim], len(indices), *x.bound[dim + 1 :])
    values = low.reshape(low.requantize_like(low.get(op.args["src"]), out), shape)
    low.finish(op, identity(len(out.shape)), "ScatterNd", [low.requantize_like(low.get(x), out), at, values])
