"""Lowering of reading and writing at places that other tensors name: TOSA's GATHER and SCATTER, on a U85."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgewright.backends.ethos_u.lower import BOOL, INT32, TosaLowering, result, sizes
from edgewright.backends.ethos_u.movement import stored_as
from edgewright.backends.ethos_u.slice_concat import cut, joined, picked, runs
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import Order, identity


def _gathered(low: TosaLowering, values: Value, places: Value) -> Value:
    """``values`` (n, k, c) at ``places`` (n, w)."""
    shape = [values.bound[0], places.bound[1], values.bound[2]]
    return low.node("gather", shape, values.dtype, values=values, indices=places)


def _whole(low: TosaLowering, index: Value, order: Order | None = None) -> Value:
    """Places as 32-bit numbers."""
    held = low.get(index, order)
    return low.tensor(held.data, np.int32) if held.data is not None and held.dtype != INT32 else held


def _listed(low: TosaLowering, index: Value) -> Value:
    return low.reshaped(_whole(low, index), [1, math.prod(index.bound)])


def embedding(low: TosaLowering, op: Op) -> None:
    weight, indices, out = op.args["weight"], op.args["indices"], result(op)
    rows = low.get(weight)
    table = low.tensor(rows.data[None]) if rows.data is not None else low.reshaped(rows, [1, *rows.bound])
    places = _listed(low, indices)
    made = stored_as(low, weight, out, _gathered(low, table, places))
    low.alias(out, identity(len(out.shape)), low.reshaped(made, sizes(out)))


def _first(low: TosaLowering, x: Value, dims: Sequence[int]) -> tuple[Value, Order]:
    """A tensor with these dimensions first, made one: (1, k, c)."""
    order = (*dims, *(d for d in range(len(x.shape)) if d not in dims))
    held = low.get(x, order)
    return low.reshaped(held, [1, math.prod(held.bound[: len(dims)]), math.prod(held.bound[len(dims) :])]), order


def index_select(low: TosaLowering, op: Op) -> None:
    x, index, out = op.args["self"], op.args["index"], result(op)
    dim = op.args["dim"] % len(x.shape)
    if index.constant and index.data is not None:
        order = identity(len(x.shape))
        made = picked(low, low.get(x), dim, index.data.ravel().tolist())
    else:
        values, order = _first(low, x, [dim])
        made = _gathered(low, values, _listed(low, index))
    low.alias(out, order, low.reshaped(stored_as(low, x, out, made), [out.bound[d] for d in order]))


def gather(low: TosaLowering, op: Op) -> None:
    """Each element has its own place along one dimension; of the others, as much as the index has."""
    x, index, out = op.args["self"], op.args["index"], result(op)
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = (*(d for d in range(rank) if d != dim), dim)
    held = low.get(x, order)
    for axis, d in enumerate(order[:-1]):
        held = cut(low, held, axis, 0, index.bound[d])
    count = math.prod(held.bound[:-1])
    places = low.reshaped(_whole(low, index, order), [count, index.bound[dim]])
    made = _gathered(low, low.reshaped(held, [count, x.bound[dim], 1]), places)
    low.alias(out, order, low.reshaped(stored_as(low, x, out, made), [out.bound[d] for d in order]))


# ------------------------------------------------------------------------------------------------ several indices


def named_dims(op: Op) -> list[int]:
    """The dimensions that ``index`` and ``index_put`` have places for."""
    return [d for d, index in enumerate(op.args["indices"]) if index is not None]


def _places(low: TosaLowering, op: Op) -> tuple[Value, list[int]]:
    """One place among the elements of all named dimensions, (1, w); and the shape of the indices together."""
    x, dims = op.args["self"], named_dims(op)
    found = [op.args["indices"][d] for d in dims]
    shape = list(np.broadcast_shapes(*(i.bound for i in found)))
    total: Value | None = None
    for d, index in zip(dims, found, strict=True):
        held = _whole(low, index)
        held = low.reshaped(held, [1] * (max(len(shape), 1) - len(held.bound)) + list(held.bound))
        held = _from_the_end(low, held, x.bound[d])
        if total is not None:
            size = low.tensor(np.full([1] * len(held.bound), x.bound[d]), np.int32)
            total = low.node("mul", total.bound, INT32, a=total, b=size, shift=0)
            joint = np.broadcast_shapes(total.bound, held.bound)
            held = low.node("add", joint, INT32, a=total, b=held)
        total = held
    assert total is not None
    return low.reshaped(total, [1, math.prod(shape)]), shape


def _from_the_end(low: TosaLowering, places: Value, size: int) -> Value:
    """Negative places count from the end."""
    one = [1] * len(places.bound)
    zero, whole = low.tensor(np.zeros(one), np.int32), low.tensor(np.full(one, size), np.int32)
    negative = low.node("greater", places.bound, BOOL, a=zero, b=places)
    later = low.node("add", places.bound, INT32, a=places, b=whole)
    return low.node("select", places.bound, INT32, condition=negative, on_true=later, on_false=places)


def known_places(op: Op) -> Array | None:
    """The places among the elements of all named dimensions, if they are constant."""
    if op.kind == "index_select":
        data: Array = op.args["index"].data
        return data
    dims, x = named_dims(op), op.args["self"]
    found = [op.args["indices"][d] for d in dims]
    if any(i.data is None for i in found):
        return None
    wrapped = [np.where(i.data < 0, i.data + x.bound[d], i.data) for i, d in zip(found, dims, strict=True)]
    return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*wrapped)), [x.bound[d] for d in dims]))


def slices(op: Op) -> int:
    """How many pieces constant places are read in."""
    known = known_places(op)
    return 0 if known is None else len(runs(known.ravel().tolist()))


def index(low: TosaLowering, op: Op) -> None:
    """Places for neighbouring dimensions; the indices' own dimensions take their place."""
    x, out, dims = op.args["self"], result(op), named_dims(op)
    values, _ = _first(low, x, dims)
    known = known_places(op)
    if known is not None:
        shape, found = list(known.shape), picked(low, values, 1, known.ravel().tolist())
    else:
        places, shape = _places(low, op)
        found = _gathered(low, values, places)
    made = stored_as(low, x, out, found)
    others = [d for d in range(len(x.shape)) if d not in dims]
    before = sum(d < dims[0] for d in others)
    # In the result: what came before, the indices, what came after.
    new = range(before, before + len(shape))
    rest = [d if d < before else d + len(shape) for d in range(len(others))]
    order = (*new, *rest)
    low.alias(out, order, low.reshaped(made, [out.bound[d] for d in order]))


def index_put(low: TosaLowering, op: Op) -> None:
    """The same places, written. Values are spread over all of them first."""
    x, given, out, dims = op.args["self"], op.args["values"], result(op), named_dims(op)
    values, order = _first(low, x, dims)
    places, shape = _places(low, op)
    others = [x.bound[d] for d in order[len(dims) :]]
    source = stored_as(low, given, out, low.get(given))
    full = [*shape, *others]
    source = low.reshaped(source, [1] * (len(full) - len(source.bound)) + list(source.bound))
    times = [a // b for a, b in zip(full, source.bound, strict=True)]
    if any(t > 1 for t in times):
        source = low.node("tile", full, source.dtype, input=source, multiples=times)
    source = low.reshaped(source, [1, math.prod(shape), values.bound[2]])
    target = stored_as(low, x, out, values)
    made = low.node("scatter", target.bound, target.dtype, values=target, indices=places, input=source)
    low.alias(out, order, low.reshaped(made, [out.bound[d] for d in order]))


# ----------------------------------------------------------------------------------------------------- known places


def scattered(low: TosaLowering, op: Op) -> None:
    """``slice_scatter`` and ``select_scatter``: what lies before, what is written, what lies after."""
    x, source, out = op.args["self"], op.args["src"], result(op)
    dim = op.args["dim"] % len(x.shape)
    held = stored_as(low, x, out, low.get(x))
    middle = stored_as(low, source, out, low.get(source))
    first, count = written(op)
    middle = low.reshaped(middle, [count if d == dim else s for d, s in enumerate(x.bound)])
    after = first + count
    parts = [cut(low, held, dim, 0, first)] if first else []
    parts += [middle] + ([cut(low, held, dim, after, x.bound[dim] - after)] if after < x.bound[dim] else [])
    low.alias(out, identity(len(out.shape)), joined(low, parts, dim))


def written(op: Op) -> tuple[int, int]:
    """Where a ``*_scatter`` along one dimension begins, and how many places it writes."""
    x = op.args["self"]
    size = x.bound[op.args["dim"] % len(x.shape)]
    if op.kind == "select_scatter":
        return op.args["index"] % size, 1
    start, end = (op.args.get(name) for name in ("start", "end"))
    first, last, _ = slice(start, end).indices(size)
    return first, max(last - first, 0)
