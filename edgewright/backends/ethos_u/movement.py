"""Lowering of operators that only move elements.

What an operator does to one dimension is said by the op table: asked of the numbers 0, 1, 2 … it gives the places it
reads. Runs of such places are slices, forwards or backwards, near or far apart, and are joined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import TosaLowering, result, scale_of, sizes, zero_of
from edgewright.backends.ethos_u.slice_concat import cut, joined, picked, tiled
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.flatten_images import flat_places
from edgewright.lowering.passes.layout import Order, common_order, identity
from edgewright.lowering.passes.view_order import permuted, squeezed

# --------------------------------------------------------------------------------------------------------- naming


def stored_alike(x: Value, out: Value) -> bool:
    """True if two tensors have the same integers for the same values."""
    if x.q is None or out.q is None:
        return x.dtype == out.dtype
    return (x.q.scale, x.q.zero_point, x.q.dtype) == (out.q.scale, out.q.zero_point, out.q.dtype)


def stored_as(low: TosaLowering, x: Value, out: Value, held: Value) -> Value:
    """``held``, which has values of ``x``, as ``out`` is stored."""
    if stored_alike(x, out):
        return held
    return low.rescale(held, out.dtype, scale_of(x) / scale_of(out), zero_of(x), zero_of(out))


def same(low: TosaLowering, op: Op) -> None:
    """A copy that changes nothing: another name."""
    name = "src" if op.kind == "copy" else next(iter(op.args))
    x, out = op.args[name], result(op)
    if x.shape != out.shape:  # a copy may broadcast
        _spread(low, op, x, out)
    elif not stored_alike(x, out):
        order = common_order(low, op, len(out.shape))
        low.alias(out, order, stored_as(low, x, out, low.get(x, order)))
    elif not low.flat_again(x, out):
        for order in low.orders(x) or [identity(len(x.shape))]:
            low.alias(out, order, low.get(x, order))


def permute(low: TosaLowering, op: Op) -> None:
    """Another name for what is there."""
    x, out = op.args["self"], result(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        held = stored_as(low, x, out, low.get(x, order))
        low.alias(out, permuted(op, order), held)


def view(low: TosaLowering, op: Op) -> None:
    """Another shape. Rows of a flattened image wait: who multiplies them with weights can take any order."""
    x, out = op.args["self"], result(op)

    def in_order() -> Value:
        return low.reshaped(stored_as(low, x, out, low.get(x)), sizes(out))

    known = next(iter(low.orders(x)), None)
    places = flat_places(x, out, known)
    if places is None:
        low.alias(out, identity(len(out.shape)), in_order())
        return
    held = low.reshaped(stored_as(low, x, out, low.get(x, known)), sizes(out))
    low.flatten_later(out, held, places, in_order)


def squeeze(low: TosaLowering, op: Op) -> None:
    """Sizes of 1 go, or come, in whatever order the others are held."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    held = stored_as(low, x, out, low.get(x, order))
    final = squeezed(op, order)
    low.alias(out, final, low.reshaped(held, [out.bound[d] for d in final]))


# ---------------------------------------------------------------------------------------------------------- places


def places_of(op: Op, size: int, **changed: Any) -> list[list[int]]:
    """What an operator reads of a dimension of ``size``, for each of its results."""
    made = OPS[op.kind].call({**op.args, "self": np.arange(size), **changed})
    return [np.atleast_1d(m).tolist() for m in made]


def part(low: TosaLowering, op: Op) -> None:
    """``slice``, ``narrow``, ``split`` and the like: places of one dimension, for each result."""
    x = op.args["self"]
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = common_order(low, op, rank)
    held = low.get(x, order)
    for out, places in zip(op.outputs, places_of(op, x.bound[dim], dim=0), strict=False):
        if out is not None:
            made = stored_as(low, x, out, picked(low, held, order.index(dim), places))
            if len(out.shape) == rank:
                low.alias(out, order, made)
            else:  # ``select`` and ``unbind`` leave the dimension out
                final = tuple(d - (d > dim) for d in order if d != dim)
                low.alias(out, final, low.reshaped(made, [out.bound[d] for d in final]))


def along_each(places: Callable[[Op, Value, int], Sequence[int]]) -> Callable[[TosaLowering, Op], None]:
    """Places of each dimension, one after the other."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        order = common_order(low, op, len(x.shape))
        held = low.get(x, order)
        for dim in range(len(x.shape)):
            wanted = list(places(op, x, dim))
            if wanted != list(range(x.bound[dim])):
                held = picked(low, held, order.index(dim), wanted)
        low.alias(out, order, stored_as(low, x, out, held))

    return lower


def _flipped(op: Op, x: Value, dim: int) -> Sequence[int]:
    turned_dims = {d % len(x.shape) for d in op.args["dims"]}
    return range(x.bound[dim])[::-1] if dim in turned_dims else range(x.bound[dim])


def _padded(op: Op, x: Value, dim: int) -> Sequence[int]:
    """Of a padding that repeats elements: what it gives for the numbers of the places."""
    given = list(op.args["padding"] if "padding" in op.args else op.args["pad"])
    at = 2 * (len(x.shape) - 1 - dim)
    if at >= len(given):
        return range(x.bound[dim])
    name = "reflection_pad" if "reflect" in (op.kind + op.args.get("mode", "")) else "replication_pad"
    line = np.arange(x.bound[dim])[None]
    return OPS[name].call({"self": line, "padding": given[at : at + 2]})[0][0].tolist()  # type: ignore[no-any-return]


def _rolled(op: Op, x: Value, dim: int) -> Sequence[int]:
    shift = sum(s for s, d in zip(op.args["shifts"], op.args["dims"], strict=True) if d % len(x.shape) == dim)
    return np.roll(np.arange(x.bound[dim]), shift).tolist()  # type: ignore[no-any-return]


flip, pad_by_mode, _roll = along_each(_flipped), along_each(_padded), along_each(_rolled)


def roll(low: TosaLowering, op: Op) -> None:
    """Without dimensions, all elements in their order are one."""
    if op.args.get("dims"):
        _roll(low, op)
        return
    x, out = op.args["self"], result(op)
    count = math.prod(x.bound)
    places = np.roll(np.arange(count), op.args["shifts"][0]).tolist()
    made = picked(low, low.reshaped(low.get(x), [count]), 0, places)
    low.alias(out, identity(len(out.shape)), low.reshaped(stored_as(low, x, out, made), sizes(out)))


# --------------------------------------------------------------------------------------------------- repeating, joining


def _leading(low: TosaLowering, op: Op, x: Value, rank: int) -> tuple[Value, Order]:
    """A tensor with sizes of 1 in front, so that it has ``rank`` dimensions."""
    more = rank - len(x.shape)
    order = common_order(low, op, len(x.shape))
    final = (*range(more), *(d + more for d in order))
    held = low.get(x, order)
    return low.reshaped(held, [1] * more + list(held.bound)), final


def _spread(low: TosaLowering, op: Op, x: Value, out: Value) -> None:
    """Sizes of 1 become others by repetition."""
    held, order = _leading(low, op, x, len(out.shape))
    times = [out.bound[d] // held.bound[i] for i, d in enumerate(order)]
    low.alias(out, order, stored_as(low, x, out, tiled(low, held, times)))


def expand(low: TosaLowering, op: Op) -> None:
    """``expand``, ``expand_as``, ``repeat``: the whole, again and again."""
    _spread(low, op, op.args["self"], result(op))


def cat(low: TosaLowering, op: Op) -> None:
    out = result(op)
    order = common_order(low, op, len(out.shape))
    given = [v for v in op.args["tensors"] if v.bound != (0,)]
    parts = [stored_as(low, v, out, low.get(v, order)) for v in given]
    low.alias(out, order, joined(low, parts, order.index(op.args["dim"] % len(out.shape))))


def stack(low: TosaLowering, op: Op) -> None:
    """Each tensor with one more dimension, joined along it."""
    out = result(op)
    rank = len(out.shape)
    dim, order = op.args["dim"] % rank, common_order(low, op, rank - 1)
    raised = [d + (d >= dim) for d in order]
    final = (*raised[:dim], dim, *raised[dim:])
    thin = [1 if d == dim else out.bound[d] for d in final]
    parts = [low.reshaped(stored_as(low, v, out, low.get(v, order)), thin) for v in op.args["tensors"]]
    low.alias(out, final, joined(low, parts, dim))


def pad(low: TosaLowering, op: Op) -> None:
    """A border of one value; what is less than nothing is cut off."""
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    given = list(op.args["pad"])
    sides = [[0, 0]] * (rank - len(given) // 2) + [given[i : i + 2] for i in range(len(given) - 2, -1, -2)]
    held = stored_as(low, x, out, low.get(x, order))
    for axis, d in enumerate(order):
        first, last = max(-sides[d][0], 0), held.bound[axis] - max(-sides[d][1], 0)
        held = cut(low, held, axis, first, last - first)
    padding = [max(side, 0) for d in order for side in sides[d]]
    if any(padding):
        fill = low.tensor(stored_number(op.args.get("value") or 0, out).reshape(1))
        shape = [out.bound[d] for d in order]
        held = low.node("pad", shape, held.dtype, input=held, padding=padding, value=fill)
    low.alias(out, order, held)


def stored_number(number: float, like: Value) -> Array:
    """A number as a tensor's elements are stored."""
    if like.q is None:
        return np.asarray(number, like.dtype)
    steps = np.nan_to_num(np.float64(number) / scale_of(like), posinf=2.0**31, neginf=-(2.0**31))
    steps = np.clip(np.round(np.clip(steps, -(2.0**31), 2.0**31)) + zero_of(like), like.q.qmin, like.q.qmax)
    return np.asarray(steps, like.dtype)
