"""Lowering of data movement.

The op table's reference, applied to 0, 1, 2, …, returns the indices that an operator selects along a dimension; those
of a slice are evenly spaced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import QnnLowering, as_uint32, output_of
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import common_order, identity, permuted_order


def _first_operand(op: Op) -> Value:
    """The first tensor argument."""
    value: Value = next(iter(op.inputs()))
    return value


def alias(low: QnnLowering, op: Op) -> None:
    """No node: the output is an alias of the input."""
    x, out = _first_operand(op), output_of(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, order, low.requantize_like(low.get(x, order), out))


def permute(low: QnnLowering, op: Op) -> None:
    """No node: the output is an alias with permuted dimension order."""
    x, out = op.args["self"], output_of(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, permuted_order(op, order), low.requantize_like(low.get(x, order), out))


def view(low: QnnLowering, op: Op) -> None:
    """Reshape, in the original dimension order."""
    out = output_of(op)
    source = low.requantize_like(low.get(op.args["self"]), out)
    low.alias(out, identity(len(out.shape)), low.reshape(source, out.bound))


def slices(low: QnnLowering, op: Op) -> None:
    """``slice``, ``narrow``, ``select``, ``split`` and ``unbind``: one strided slice per output."""
    x = op.args["self"]
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = common_order(low, op, rank)
    source = low.get(x, order)
    result = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})
    for out, indices in zip(op.outputs, result, strict=False):
        if out is None:
            continue
        part = low.requantize_like(_slice(low, source, {order.index(dim): np.atleast_1d(indices)}), out)
        final = order if len(out.shape) == rank else tuple(d - (d > dim) for d in order if d != dim)
        low.alias(out, final, low.reshape(part, [out.bound[d] for d in final]))


def _slice(
    low: QnnLowering, source: Value, indices: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]
) -> Value:
    """Strided slice of evenly spaced indices."""
    ranges = np.array([[0, n, 1] for n in source.bound], np.int32)
    shape = list(source.bound)
    for axis, at in indices.items():
        step = int(at[1] - at[0]) if at.size > 1 else 1
        ranges[axis] = int(at[0]), int(at[-1]) + (1 if step > 0 else -1), step
        shape[axis] = at.size
    if tuple(shape) == source.bound and (ranges[:, 2] > 0).all():
        return source
    result = low.temporary(shape, source)
    low.node("StridedSlice", [source], result, ranges=ranges)
    return result


def flip(low: QnnLowering, op: Op) -> None:
    x, out = op.args["self"], output_of(op)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    reversed_dims = {order.index(d % rank): np.arange(x.bound[d])[::-1] for d in op.args["dims"] if x.bound[d] > 1}
    low.alias(out, order, low.requantize_like(_slice(low, low.get(x, order), reversed_dims), out))


def roll(low: QnnLowering, op: Op) -> None:
    """The two parts of each dimension, exchanged; without dimensions, those of the flattened tensor."""
    x, out = op.args["self"], output_of(op)
    flat = not op.args.get("dims")
    order = identity(len(x.shape)) if flat else common_order(low, op, len(x.shape))
    result = low.reshape(low.get(x, order), [math.prod(x.bound)]) if flat else low.get(x, order)
    dims = [0] if flat else [order.index(d % len(x.shape)) for d in op.args["dims"]]
    for axis, shift in zip(dims, op.args["shifts"], strict=True):
        size = result.bound[axis]
        indices, cut = np.arange(size), -shift % size
        if cut:
            parts = [_slice(low, result, {axis: part}) for part in (indices[cut:], indices[:cut])]
            result = low.temporary(result.bound, result)
            low.node("Concat", parts, result, axis=axis)
    low.alias(out, order, low.requantize_like(low.reshape(result, [out.bound[d] for d in order]), out))


def cat(low: QnnLowering, op: Op) -> None:
    tensors = [t for t in op.args["tensors"] if t.shape != (0,)]
    out = output_of(op)
    rank = len(out.shape)
    order = common_order(low, op, rank)
    axis = order.index(op.args.get("dim", 0) % rank)
    low.finish(op, order, "Concat", [low.get(t, order) for t in tensors], axis=axis)


def stack(low: QnnLowering, op: Op) -> None:
    out = output_of(op)
    rank = len(out.shape)
    inputs = [low.get(t) for t in op.args["tensors"]]
    low.finish(op, identity(rank), "Pack", inputs, axis=op.args.get("dim", 0) % rank)


def tile(low: QnnLowering, op: Op) -> None:
    """``expand`` and ``repeat``."""
    x, out = op.args["self"], output_of(op)
    source = low.get(x)
    expanded = low.reshape(source, (1,) * (len(out.shape) - len(x.shape)) + source.bound)
    repeats = [m // n for m, n in zip(out.bound, expanded.bound, strict=True)]
    order = identity(len(out.shape))
    if math.prod(repeats) == 1:
        low.alias(out, order, low.requantize_like(expanded, out))
    else:
        low.finish(op, order, "Tile", [expanded], multiples=as_uint32(repeats))


def pad(low: QnnLowering, op: Op) -> None:
    """Constant or reflection padding."""
    x = op.args["self"]
    rank, padding = len(x.shape), list(op.args["pad" if "pad" in op.args else "padding"])
    pairs = [padding[i : i + 2] for i in range(0, len(padding), 2)][::-1]
    amounts = [[0, 0]] * (rank - len(pairs)) + pairs
    order = common_order(low, op, rank)
    params: dict[str, Any] = {"scheme": 2, "pad_amount": as_uint32([amounts[d] for d in order])}
    if op.kind == "pad":
        params.update(scheme=0, pad_constant_value=float(op.args.get("value") or 0))
    low.finish(op, order, "Pad", [low.get(x, order)], **params)
