"""Lowering of data movement.

The op table's reference defines what an operator does to a dimension: applied to 0, 1, 2, ... it returns the indices
that the operator reads. Arithmetic runs of indices become strided slices, which are concatenated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.lower import TosaLowering, result, scale_of, static_sizes, zero_of
from edgewright.backends.ethos_u.slice_concat import concat, slice_axis, take, tile
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, Value
from edgewright.lowering.passes.layout import (
    Order,
    common_order,
    flatten_permutation,
    identity,
    permuted_order,
    squeezed_order,
)

# ---------------------------------------------------------------------------------------------------------- aliases


def same_quantization(x: Value, out: Value) -> bool:
    """True if two tensors store the same integers for the same values."""
    if x.q is None or out.q is None:
        return x.dtype == out.dtype
    return (x.q.scale, x.q.zero_point, x.q.dtype) == (out.q.scale, out.q.zero_point, out.q.dtype)


def requantize_to(low: TosaLowering, x: Value, out: Value, tensor: Value) -> Value:
    """``tensor``, which has elements of ``x``, requantized to the encoding of ``out``."""
    if same_quantization(x, out):
        return tensor
    return low.rescale(tensor, out.dtype, scale_of(x) / scale_of(out), zero_of(x), zero_of(out))


def copy(low: TosaLowering, op: Op) -> None:
    """Copies without a change of layout: an alias, a requantization, or a broadcast."""
    name = "src" if op.kind == "copy" else next(iter(op.args))
    x, out = op.args[name], result(op)
    if x.shape != out.shape:  # a copy may broadcast
        _broadcast(low, op, x, out)
    elif not same_quantization(x, out):
        order = common_order(low, op, len(out.shape))
        low.alias(out, order, requantize_to(low, x, out, low.get(x, order)))
    elif not low.alias_deferred(x, out):
        for order in low.orders(x) or [identity(len(x.shape))]:
            low.alias(out, order, low.get(x, order))


def permute(low: TosaLowering, op: Op) -> None:
    """An alias with another dimension order."""
    x, out = op.args["self"], result(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        stored = requantize_to(low, x, out, low.get(x, order))
        low.alias(out, permuted_order(op, order), stored)


def view(low: TosaLowering, op: Op) -> None:
    """A reshape. Flattened images are deferred: a matrix product with constant weights accepts any column order."""
    x, out = op.args["self"], result(op)

    def in_order() -> Value:
        return low.reshape(requantize_to(low, x, out, low.get(x)), static_sizes(out))

    order = next(iter(low.orders(x)), None)
    columns = flatten_permutation(x, out, order)
    if columns is None:
        low.alias(out, identity(len(out.shape)), in_order())
        return
    flat = low.reshape(requantize_to(low, x, out, low.get(x, order)), static_sizes(out))
    low.defer_flatten(out, flat, columns, in_order)


def squeeze(low: TosaLowering, op: Op) -> None:
    """Remove or insert dimensions of size one, in the stored dimension order."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    stored = requantize_to(low, x, out, low.get(x, order))
    final = squeezed_order(op, order)
    low.alias(out, final, low.reshape(stored, [out.bound[d] for d in final]))


# ---------------------------------------------------------------------------------------------------------- indices


def read_indices(op: Op, size: int, **overrides: Any) -> list[list[int]]:
    """Indices that an operator reads along a dimension of ``size``, for each result."""
    results = OPS[op.kind].call({**op.args, "self": np.arange(size), **overrides})
    return [np.atleast_1d(m).tolist() for m in results]


def slice_dim(low: TosaLowering, op: Op) -> None:
    """``slice``, ``narrow``, ``split`` and the like: indices of one dimension, for each result."""
    x = op.args["self"]
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = common_order(low, op, rank)
    tensor = low.get(x, order)
    for out, indices in zip(op.outputs, read_indices(op, x.bound[dim], dim=0), strict=False):
        if out is not None:
            selected = requantize_to(low, x, out, take(low, tensor, order.index(dim), indices))
            if len(out.shape) == rank:
                low.alias(out, order, selected)
            else:  # ``select`` and ``unbind`` leave the dimension out
                final = tuple(d - (d > dim) for d in order if d != dim)
                low.alias(out, final, low.reshape(selected, [out.bound[d] for d in final]))


def take_each_dim(indices: Callable[[Op, Value, int], Sequence[int]]) -> Callable[[TosaLowering, Op], None]:
    """Lowering that takes indices along each dimension in turn."""

    def lower(low: TosaLowering, op: Op) -> None:
        x, out = op.args["self"], result(op)
        order = common_order(low, op, len(x.shape))
        tensor = low.get(x, order)
        for dim in range(len(x.shape)):
            selected = list(indices(op, x, dim))
            if selected != list(range(x.bound[dim])):
                tensor = take(low, tensor, order.index(dim), selected)
        low.alias(out, order, requantize_to(low, x, out, tensor))

    return lower


def _flip_indices(op: Op, x: Value, dim: int) -> Sequence[int]:
    flipped_dims = {d % len(x.shape) for d in op.args["dims"]}
    return range(x.bound[dim])[::-1] if dim in flipped_dims else range(x.bound[dim])


def _pad_indices(op: Op, x: Value, dim: int) -> Sequence[int]:
    """Indices that reflection or replication padding reads."""
    padding = list(op.args["padding"] if "padding" in op.args else op.args["pad"])
    at = 2 * (len(x.shape) - 1 - dim)
    if at >= len(padding):
        return range(x.bound[dim])
    name = "reflection_pad" if "reflect" in (op.kind + op.args.get("mode", "")) else "replication_pad"
    ramp = np.arange(x.bound[dim])[None]
    return OPS[name].call({"self": ramp, "padding": padding[at : at + 2]})[0][0].tolist()  # type: ignore[no-any-return]


def _roll_indices(op: Op, x: Value, dim: int) -> Sequence[int]:
    shift = sum(s for s, d in zip(op.args["shifts"], op.args["dims"], strict=True) if d % len(x.shape) == dim)
    return np.roll(np.arange(x.bound[dim]), shift).tolist()  # type: ignore[no-any-return]


flip, pad_by_mode, _roll = take_each_dim(_flip_indices), take_each_dim(_pad_indices), take_each_dim(_roll_indices)


def roll(low: TosaLowering, op: Op) -> None:
    """Roll along dimensions; without dimensions, roll the flattened tensor."""
    if op.args.get("dims"):
        _roll(low, op)
        return
    x, out = op.args["self"], result(op)
    count = math.prod(x.bound)
    indices = np.roll(np.arange(count), op.args["shifts"][0]).tolist()
    rolled = take(low, low.reshape(low.get(x), [count]), 0, indices)
    low.alias(out, identity(len(out.shape)), low.reshape(requantize_to(low, x, out, rolled), static_sizes(out)))


# ----------------------------------------------------------------------------------------------- tiling, concatenation


def _prepend_dims(low: TosaLowering, op: Op, x: Value, rank: int) -> tuple[Value, Order]:
    """A tensor with leading ones, so that it has ``rank`` dimensions."""
    missing = rank - len(x.shape)
    order = common_order(low, op, len(x.shape))
    final = (*range(missing), *(d + missing for d in order))
    stored = low.get(x, order)
    return low.reshape(stored, [1] * missing + list(stored.bound)), final


def _broadcast(low: TosaLowering, op: Op, x: Value, out: Value) -> None:
    """Broadcast by tiling."""
    stored, order = _prepend_dims(low, op, x, len(out.shape))
    multiples = [out.bound[d] // stored.bound[i] for i, d in enumerate(order)]
    low.alias(out, order, requantize_to(low, x, out, tile(low, stored, multiples)))


def expand(low: TosaLowering, op: Op) -> None:
    """``expand``, ``expand_as``, ``repeat``."""
    _broadcast(low, op, op.args["self"], result(op))


def cat(low: TosaLowering, op: Op) -> None:
    out = result(op)
    order = common_order(low, op, len(out.shape))
    tensors = [v for v in op.args["tensors"] if v.bound != (0,)]
    parts = [requantize_to(low, v, out, low.get(v, order)) for v in tensors]
    low.alias(out, order, concat(low, parts, order.index(op.args["dim"] % len(out.shape))))


def stack(low: TosaLowering, op: Op) -> None:
    """Insert a dimension into each tensor and concatenate along it."""
    out = result(op)
    rank = len(out.shape)
    dim, order = op.args["dim"] % rank, common_order(low, op, rank - 1)
    shifted_order = [d + (d >= dim) for d in order]
    final = (*shifted_order[:dim], dim, *shifted_order[dim:])
    unit_shape = [1 if d == dim else out.bound[d] for d in final]
    parts = [low.reshape(requantize_to(low, v, out, low.get(v, order)), unit_shape) for v in op.args["tensors"]]
    low.alias(out, final, concat(low, parts, dim))


def pad(low: TosaLowering, op: Op) -> None:
    """Constant padding; negative padding crops."""
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    padding_arg = list(op.args["pad"])
    sides = [[0, 0]] * (rank - len(padding_arg) // 2) + [
        padding_arg[i : i + 2] for i in range(len(padding_arg) - 2, -1, -2)
    ]
    tensor = requantize_to(low, x, out, low.get(x, order))
    for axis, d in enumerate(order):
        first, last = max(-sides[d][0], 0), tensor.bound[axis] - max(-sides[d][1], 0)
        tensor = slice_axis(low, tensor, axis, first, last - first)
    padding = [max(side, 0) for d in order for side in sides[d]]
    if any(padding):
        fill = low.const(quantize_scalar(op.args.get("value") or 0, out).reshape(1))
        shape = [out.bound[d] for d in order]
        tensor = low.node("pad", shape, tensor.dtype, input=tensor, padding=padding, value=fill)
    low.alias(out, order, tensor)


def quantize_scalar(number: float, like: Value) -> Array:
    """A number in the quantization of a tensor."""
    if like.q is None:
        return np.asarray(number, like.dtype)
    steps = np.nan_to_num(np.float64(number) / scale_of(like), posinf=2.0**31, neginf=-(2.0**31))
    steps = np.clip(np.round(np.clip(steps, -(2.0**31), 2.0**31)) + zero_of(like), like.q.qmin, like.q.qmax)
    return np.asarray(steps, like.dtype)
