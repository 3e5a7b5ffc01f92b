"""Lowering of gather and scatter: TOSA's GATHER and SCATTER on U85, slices for constant indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, INT32, TosaLowering, result, static_sizes
from edgewright.backends.ethos_u.movement import requantize_to
from edgewright.backends.ethos_u.slice_concat import concat, slice_axis, strided_runs, take
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order, identity


def _emit_gather(low: TosaLowering, values: Value, indices: Value) -> Value:
    """``values`` (n, k, c) at ``indices`` (n, w)."""
    shape = [values.bound[0], indices.bound[1], values.bound[2]]
    return low.node("gather", shape, values.dtype, values=values, indices=indices)


def _int32_indices(low: TosaLowering, index: Value, order: Order | None = None) -> Value:
    """Indices as int32."""
    tensor = low.get(index, order)
    return low.const(tensor.data, np.int32) if tensor.data is not None and tensor.dtype != INT32 else tensor


def _flat_indices(low: TosaLowering, index: Value) -> Value:
    return low.reshape(_int32_indices(low, index), [1, math.prod(index.bound)])


def embedding(low: TosaLowering, op: Op) -> None:
    weight, indices, out = op.args["weight"], op.args["indices"], result(op)
    rows = low.get(weight)
    table = low.const(rows.data[None]) if rows.data is not None else low.reshape(rows, [1, *rows.bound])
    flat_indices = _flat_indices(low, indices)
    rows_out = requantize_to(low, weight, out, _emit_gather(low, table, flat_indices))
    low.alias(out, identity(len(out.shape)), low.reshape(rows_out, static_sizes(out)))


def _dims_first(low: TosaLowering, x: Value, dims: Sequence[int]) -> tuple[Value, Order]:
    """A tensor with these dimensions moved first and merged: (1, k, c)."""
    order = (*dims, *(d for d in range(len(x.shape)) if d not in dims))
    stored = low.get(x, order)
    return low.reshape(stored, [1, math.prod(stored.bound[: len(dims)]), math.prod(stored.bound[len(dims) :])]), order


def index_select(low: TosaLowering, op: Op) -> None:
    x, index, out = op.args["self"], op.args["index"], result(op)
    dim = op.args["dim"] % len(x.shape)
    if index.constant and index.data is not None:
        order = identity(len(x.shape))
        selected = take(low, low.get(x), dim, index.data.ravel().tolist())
    else:
        values, order = _dims_first(low, x, [dim])
        selected = _emit_gather(low, values, _flat_indices(low, index))
    low.alias(out, order, low.reshape(requantize_to(low, x, out, selected), [out.bound[d] for d in order]))


def gather(low: TosaLowering, op: Op) -> None:
    """One index per element along one dimension; the other dimensions are cropped to the index."""
    x, index, out = op.args["self"], op.args["index"], result(op)
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = (*(d for d in range(rank) if d != dim), dim)
    tensor = low.get(x, order)
    for axis, d in enumerate(order[:-1]):
        tensor = slice_axis(low, tensor, axis, 0, index.bound[d])
    count = math.prod(tensor.bound[:-1])
    indices = low.reshape(_int32_indices(low, index, order), [count, index.bound[dim]])
    gathered = _emit_gather(low, low.reshape(tensor, [count, x.bound[dim], 1]), indices)
    low.alias(out, order, low.reshape(requantize_to(low, x, out, gathered), [out.bound[d] for d in order]))


# ------------------------------------------------------------------------------------------------ several indices


def indexed_dims(op: Op) -> list[int]:
    """Dimensions that ``index`` and ``index_put`` have indices for."""
    return [d for d, index in enumerate(op.args["indices"]) if index is not None]


def _linear_indices(low: TosaLowering, op: Op) -> tuple[Value, list[int]]:
    """Linear index into the merged indexed dimensions, (1, w), and the broadcast shape of the indices."""
    x, dims = op.args["self"], indexed_dims(op)
    indices = [op.args["indices"][d] for d in dims]
    shape = list(np.broadcast_shapes(*(i.bound for i in indices)))
    total: Value | None = None
    for d, index in zip(dims, indices, strict=True):
        indices_1d = _int32_indices(low, index)
        indices_1d = low.reshape(
            indices_1d, [1] * (max(len(shape), 1) - len(indices_1d.bound)) + list(indices_1d.bound)
        )
        indices_1d = _wrap_negative(low, indices_1d, x.bound[d])
        if total is not None:
            size = low.const(np.full([1] * len(indices_1d.bound), x.bound[d]), np.int32)
            total = low.node("mul", total.bound, INT32, a=total, b=size, shift=0)
            joint = np.broadcast_shapes(total.bound, indices_1d.bound)
            indices_1d = low.node("add", joint, INT32, a=total, b=indices_1d)
        total = indices_1d
    assert total is not None
    return low.reshape(total, [1, math.prod(shape)]), shape


def _wrap_negative(low: TosaLowering, indices: Value, size: int) -> Value:
    """Negative indices count from the end."""
    ones = [1] * len(indices.bound)
    zero, size_const = low.const(np.zeros(ones), np.int32), low.const(np.full(ones, size), np.int32)
    negative = low.node("greater", indices.bound, BOOL, a=zero, b=indices)
    wrapped = low.node("add", indices.bound, INT32, a=indices, b=size_const)
    return low.node("select", indices.bound, INT32, condition=negative, on_true=wrapped, on_false=indices)


def constant_indices(op: Op) -> Array | None:
    """Linear indices into the merged indexed dimensions, if constant."""
    if op.kind == "index_select":
        data: Array = op.args["index"].data
        return data
    dims, x = indexed_dims(op), op.args["self"]
    indices = [op.args["indices"][d] for d in dims]
    if any(i.data is None for i in indices):
        return None
    wrapped = [np.where(i.data < 0, i.data + x.bound[d], i.data) for i, d in zip(indices, dims, strict=True)]
    return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*wrapped)), [x.bound[d] for d in dims]))


def slice_count(op: Op) -> int:
    """Number of slices for constant indices."""
    indices = constant_indices(op)
    return 0 if indices is None else len(strided_runs(indices.ravel().tolist()))


def index(low: TosaLowering, op: Op) -> None:
    """Indices of adjacent dimensions, which the dimensions of the index replace."""
    x, out, dims = op.args["self"], result(op), indexed_dims(op)
    values, _ = _dims_first(low, x, dims)
    constant = constant_indices(op)
    if constant is not None:
        shape, selected = list(constant.shape), take(low, values, 1, constant.ravel().tolist())
    else:
        indices, shape = _linear_indices(low, op)
        selected = _emit_gather(low, values, indices)
    requantized = requantize_to(low, x, out, selected)
    others = [d for d in range(len(x.shape)) if d not in dims]
    before = sum(d < dims[0] for d in others)
    # Dimensions of the result: those before, those of the index, those after.
    new = range(before, before + len(shape))
    rest = [d if d < before else d + len(shape) for d in range(len(others))]
    order = (*new, *rest)
    low.alias(out, order, low.reshape(requantized, [out.bound[d] for d in order]))


def index_put(low: TosaLowering, op: Op) -> None:
    """Scatter at the indices of ``index``; values are broadcast first."""
    x, new_values, out, dims = op.args["self"], op.args["values"], result(op), indexed_dims(op)
    values, order = _dims_first(low, x, dims)
    indices, shape = _linear_indices(low, op)
    others = [x.bound[d] for d in order[len(dims) :]]
    source = requantize_to(low, new_values, out, low.get(new_values))
    full = [*shape, *others]
    source = low.reshape(source, [1] * (len(full) - len(source.bound)) + list(source.bound))
    multiples = [a // b for a, b in zip(full, source.bound, strict=True)]
    if any(t > 1 for t in multiples):
        source = low.node("tile", full, source.dtype, input=source, multiples=multiples)
    source = low.reshape(source, [1, math.prod(shape), values.bound[2]])
    target = requantize_to(low, x, out, values)
    scattered = low.node("scatter", target.bound, target.dtype, values=target, indices=indices, input=source)
    low.alias(out, order, low.reshape(scattered, [out.bound[d] for d in order]))


# ----------------------------------------------------------------------------------------------------- static ranges


def slice_scatter(low: TosaLowering, op: Op) -> None:
    """``slice_scatter`` and ``select_scatter``: concatenate the parts before, written, and after."""
    x, source, out = op.args["self"], op.args["src"], result(op)
    dim = op.args["dim"] % len(x.shape)
    tensor = requantize_to(low, x, out, low.get(x))
    middle = requantize_to(low, source, out, low.get(source))
    first, count = written_range(op)
    middle = low.reshape(middle, [count if d == dim else s for d, s in enumerate(x.bound)])
    after = first + count
    parts = [slice_axis(low, tensor, dim, 0, first)] if first else []
    parts += [middle] + ([slice_axis(low, tensor, dim, after, x.bound[dim] - after)] if after < x.bound[dim] else [])
    low.alias(out, identity(len(out.shape)), concat(low, parts, dim))


def written_range(op: Op) -> tuple[int, int]:
    """First index and count that a ``*_scatter`` along one dimension writes."""
    x = op.args["self"]
    size = x.bound[op.args["dim"] % len(x.shape)]
    if op.kind == "select_scatter":
        return op.args["index"] % size, 1
    start, end = (op.args.get(name) for name in ("start", "end"))
    first, last, _ = slice(start, end).indices(size)
    return first, max(last - first, 0)
