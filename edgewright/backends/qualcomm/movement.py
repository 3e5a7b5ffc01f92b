"""Lowering of data movement.

The op table's reference, applied to 0, 1, 2, …, returns the indices that an operator selects along a dimension; those
of a slice are evenly spaced.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.lower import QnnLowering, result, unsigned
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import common_order, identity
from edgewright.lowering.passes.view_order import permuted_order


def _named(low: QnnLowering, op: Op) -> Value:
    """The first tensor argument."""
    value: Value = next(iter(op.inputs()))
    return value


def same(low: QnnLowering, op: Op) -> None:
    """No node: the output is an alias of the input."""
    x, out = _named(low, op), result(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, order, low.stored_as(low.get(x, order), out))


def permute(low: QnnLowering, op: Op) -> None:
    """No node: the output is an alias with permuted dimension order."""
    x, out = op.args["self"], result(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, permuted_order(op, order), low.stored_as(low.get(x, order), out))


def view(low: QnnLowering, op: Op) -> None:
    """Reshape, in the original dimension order."""
    out = result(op)
    held = low.stored_as(low.get(op.args["self"]), out)
    low.alias(out, identity(len(out.shape)), low.reshaped(held, out.bound))


def part(low: QnnLowering, op: Op) -> None:
    """``slice``, ``narrow``, ``select``, ``split`` and ``unbind``: one strided slice per output."""
    x = op.args["self"]
    rank = len(x.shape)
    dim = op.args["dim"] % rank
    order = common_order(low, op, rank)
    held = low.get(x, order)
    made = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})
    for out, places in zip(op.outputs, made, strict=False):
        if out is None:
            continue
        taken = low.stored_as(_sliced(low, held, {order.index(dim): np.atleast_1d(places)}), out)
        final = order if len(out.shape) == rank else tuple(d - (d > dim) for d in order if d != dim)
        low.alias(out, final, low.reshaped(taken, [out.bound[d] for d in final]))


def _sliced(low: QnnLowering, held: Value, places: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]) -> Value:
    """Strided slice of evenly spaced indices."""
    ranges = np.array([[0, n, 1] for n in held.bound], np.int32)
    shape = list(held.bound)
    for axis, at in places.items():
        step = int(at[1] - at[0]) if at.size > 1 else 1
        ranges[axis] = int(at[0]), int(at[-1]) + (1 if step > 0 else -1), step
        shape[axis] = at.size
    if tuple(shape) == held.bound and (ranges[:, 2] > 0).all():
        return held
    made = low.temporary(shape, held)
    low.node("StridedSlice", [held], made, ranges=ranges)
    return made


def flip(low: QnnLowering, op: Op) -> None:
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    order = common_order(low, op, rank)
    turned = {order.index(d % rank): np.arange(x.bound[d])[::-1] for d in op.args["dims"] if x.bound[d] > 1}
    low.alias(out, order, low.stored_as(_sliced(low, low.get(x, order), turned), out))


def cat(low: QnnLowering, op: Op) -> None:
    tensors = [t for t in op.args["tensors"] if t.shape != (0,)]
    out = result(op)
    rank = len(out.shape)
    order = common_order(low, op, rank)
    axis = order.index(op.args.get("dim", 0) % rank)
    low.finish(op, order, "Concat", [low.get(t, order) for t in tensors], axis=axis)


def stack(low: QnnLowering, op: Op) -> None:
    out = result(op)
    rank = len(out.shape)
    inputs = [low.get(t) for t in op.args["tensors"]]
    low.finish(op, identity(rank), "Pack", inputs, axis=op.args.get("dim", 0) % rank)


def tile(low: QnnLowering, op: Op) -> None:
    """``expand`` and ``repeat``."""
    x, out = op.args["self"], result(op)
    held = low.get(x)
    whole = low.reshaped(held, (1,) * (len(out.shape) - len(x.shape)) + held.bound)
    times = [m // n for m, n in zip(out.bound, whole.bound, strict=True)]
    order = identity(len(out.shape))
    if math.prod(times) == 1:
        low.alias(out, order, low.stored_as(whole, out))
    else:
        low.finish(op, order, "Tile", [whole], multiples=unsigned(times))


def pad(low: QnnLowering, op: Op) -> None:
    """Constant or reflection padding."""
    x = op.args["self"]
    rank, given = len(x.shape), list(op.args["pad" if "pad" in op.args else "padding"])
    pairs = [given[i : i + 2] for i in range(0, len(given), 2)][::-1]
    amounts = [[0, 0]] * (rank - len(pairs)) + pairs
    order = common_order(low, op, rank)
    params: dict[str, Any] = {"scheme": 2, "pad_amount": unsigned([amounts[d] for d in order])}
    if op.kind == "pad":
        params.update(scheme=0, pad_constant_value=float(op.args.get("value") or 0))
    low.finish(op, order, "Pad", [low.get(x, order)], **params)
