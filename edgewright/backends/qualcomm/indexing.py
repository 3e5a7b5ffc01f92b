"""Lowering of gather and scatter. Indices are int32; data keeps its layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import INT32, QnnLowering, real_numbers, result, stored
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity


def embedding(low: QnnLowering, op: Op) -> None:
    """Row gather; a quantized table is requantized to the output's parameters at compile time."""
    weight, out = op.args["weight"], result(op)
    table = low.get(weight)
    if out.q is not None:
        table = low.constant(stored(real_numbers(weight), out.q), out.q)
    _gather(low, op, table, low.get(op.args["indices"]), 0)


def _gather(low: QnnLowering, op: Op, source: Value, places: Value, axis: int) -> None:
    """Gather slices along ``axis`` and convert to the output's parameters. bool is gathered as int32, because the HTP
    cannot gather bool."""
    out, truths = result(op), source.dtype == np.bool_
    source = _numbers(low, source) if truths else source
    listed = low.reshaped(places, places.bound or (1,))
    shape = [*source.bound[:axis], *listed.bound, *source.bound[axis + 1 :]]
    made = low.temporary(shape, source)
    low.node("Gather", [source, listed], made, axis=np.int32(axis))
    if truths:
        numbers, made = made, low.whole(shape, np.bool_)
        low.node("Cast", [numbers], made)
    low.alias(out, identity(len(out.shape)), low.reshaped(low.stored_as(made, out), out.bound))


def _numbers(low: QnnLowering, truths: Value) -> Value:
    """bool to int32."""
    if truths.data is not None:
        return low.constant(truths.data.astype(INT32))
    made = low.whole(truths.bound)
    low.node("Cast", [truths], made)
    return made


def index_select(low: QnnLowering, op: Op) -> None:
    x = op.args["self"]
    _gather(low, op, low.get(x), low.get(op.args["index"]), op.args["dim"] % len(x.shape))


def index(low: QnnLowering, op: Op) -> None:
    """Indexing of adjacent dimensions, as one index into these dimensions flattened."""
    x, given = op.args["self"], op.args["indices"]
    front, count = listed_dims(given)
    sizes = x.bound[front : front + count]
    flat = low.reshaped(low.get(x), [*x.bound[:front], math.prod(sizes), *x.bound[front + count :]])
    whole: Value | None = None
    for place, size in zip(given[front : front + count], sizes, strict=True):
        at = _wrapped(low, place, size)
        whole = at if whole is None else _sum(low, _times(low, whole, size), at)
    assert whole is not None
    _gather(low, op, flat, whole, front)


def listed_dims(given: Sequence[Value | None]) -> tuple[int, int]:
    """First indexed dimension, and the number of indexed dimensions."""
    where = [d for d, v in enumerate(given) if v is not None]
    return where[0], len(where)


def _wrapped(low: QnnLowering, place: Value, size: int) -> Value:
    """Normalize negative indices."""
    held = low.get(place)
    if held.constant:
        assert held.data is not None
        return low.constant(np.where(held.data < 0, held.data + size, held.data).astype(INT32))
    shape = held.bound or (1,)
    held = low.reshaped(held, shape)
    behind = low.whole(shape, np.bool_)
    low.node("ElementWiseLess", [held, low.constant(np.zeros((1,), INT32))], behind)
    moved = _sum(low, held, low.constant(np.full((1,), size, INT32)))
    made = low.whole(shape)
    low.node("ElementWiseSelect", [behind, moved, held], made)
    return made


def _times(low: QnnLowering, held: Value, size: int) -> Value:
    return _pair(low, "ElementWiseMultiply", np.multiply, held, low.constant(np.full((1,), size, INT32)))


def _sum(low: QnnLowering, a: Value, b: Value) -> Value:
    return _pair(low, "ElementWiseAdd", np.add, a, b)


def _pair(low: QnnLowering, kind: str, function: Any, a: Value, b: Value) -> Value:
    if a.data is not None and b.data is not None:
        return low.constant(np.asarray(function(a.data, b.data), INT32))
    made = low.whole(np.broadcast_shapes(a.bound, b.bound))
    low.node(kind, [a, b], made)
    return made


def gather(low: QnnLowering, op: Op) -> None:
    """Element gather."""
    x, out, places = op.args["self"], result(op), low.get(op.args["index"])
    inputs = [low.get(x), low.reshaped(places, places.bound or (1,))]
    made = low.temporary(inputs[1].bound, inputs[0])
    low.node("GatherElements", inputs, made, axis=op.args["dim"] % len(x.shape))
    low.alias(out, identity(len(out.shape)), low.reshaped(low.stored_as(made, out), out.bound))


def scatter(low: QnnLowering, op: Op) -> None:
    """Element scatter."""
    x, places, out = op.args["self"], op.args["index"], result(op)
    if op.kind == "scatter_value":
        filled = np.full(places.bound, float(op.args["value"]), np.float32)
        dtype = np.float32 if x.dtype is None else x.dtype
        values = low.constant(filled.astype(dtype) if x.q is None else stored(filled, out.q), out.q)
    else:
        values = low.stored_as(_first(low, low.get(op.args["src"]), places.bound), out)
    inputs = [low.stored_as(low.get(x), out), low.get(places), values]
    axis = op.args["dim"] % len(x.shape)
    low.finish(op, identity(len(out.shape)), "ScatterElements", inputs, axis=axis, reduction=0)


def _first(low: QnnLowering, held: Value, shape: Sequence[int]) -> Value:
    """Leading slice of a given shape."""
    if tuple(shape) == held.bound:
        return held
    if held.data is not None:
        return low.constant(np.ascontiguousarray(held.data[tuple(slice(n) for n in shape)]), held.q)
    made = low.temporary(shape, held)
    low.node("StridedSlice", [held], made, ranges=np.array([[0, n, 1] for n in shape], np.int32))
    return made


def index_put(low: QnnLowering, op: Op) -> None:
    """ScatterNd; dimensions before the indexed ones get all their indices."""
    x, given, out = op.args["self"], op.args["indices"], result(op)
    front, count = listed_dims(given)
    places = [_wrapped(low, v, x.bound[front + i]) for i, v in enumerate(given[front : front + count])]
    common = np.broadcast_shapes(*(p.bound or (1,) for p in places))
    batch = (*x.bound[:front], *common)
    every = [np.arange(n, dtype=INT32).reshape(-1, *(1,) * (len(batch) - d - 1)) for d, n in enumerate(x.bound[:front])]
    columns = [*(low.constant(e) for e in every), *places]
    at = _columns(low, [_spread(low, c, batch) for c in columns], batch)
    rest = x.bound[front + count :]
    values = _spread(low, low.stored_as(low.get(op.args["values"]), out), (*batch, *rest))
    low.finish(op, identity(len(out.shape)), "ScatterNd", [low.stored_as(low.get(x), out), at, values])


def _columns(low: QnnLowering, columns: list[Value], batch: Sequence[int]) -> Value:
    """Stack the indices of several dimensions in the last dimension."""
    known = [c.data for c in columns if c.data is not None]
    if len(known) == len(columns):
        return low.constant(np.ascontiguousarray(np.stack(known, -1), INT32))
    apart = [low.reshaped(column, (*batch, 1)) for column in columns]
    if len(apart) == 1:
        return apart[0]
    made = low.whole((*batch, len(columns)))
    low.node("Concat", apart, made, axis=len(batch))
    return made


def _spread(low: QnnLowering, held: Value, shape: Sequence[int]) -> Value:
    """Broadcast a tensor explicitly."""
    if held.data is not None:
        return low.constant(np.ascontiguousarray(np.broadcast_to(held.data, tuple(shape))), held.q)
    whole = low.reshaped(held, (1,) * (len(shape) - len(held.bound)) + held.bound)
    times = [m // n for m, n in zip(shape, whole.bound, strict=True)]
    if math.prod(times) == 1:
        return whole
    made = low.temporary(shape, held)
    low.node("Tile", [whole], made, multiples=np.asarray(times, np.uint32))
    return made


def written_slice(low: QnnLowering, op: Op) -> None:
    """``slice_scatter`` and ``select_scatter``; the op table's reference determines the written indices."""
    x, out = op.args["self"], result(op)
    dim = op.args["dim"] % len(x.shape)
    reading = {n: v for n, v in op.args.items() if n != "src"}
    kind = "slice" if op.kind == "slice_scatter" else "select"
    places = np.atleast_1d(OPS[kind].call({**reading, "self": np.arange(x.bound[dim]), "dim": 0})[0])
    grid = np.meshgrid(*(np.arange(n) for n in x.bound[:dim]), places, indexing="ij")
    at = low.constant(np.ascontiguousarray(np.stack(grid, -1), INT32))
    shape = (*x.bound[:dim], len(places), *x.bound[dim + 1 :])
    values = low.reshaped(low.stored_as(low.get(op.args["src"]), out), shape)
    low.finish(op, identity(len(out.shape)), "ScatterNd", [low.stored_as(low.get(x), out), at, values])
