"""Lowering of operators that only move elements, or pick some."""

from __future__ import annotations

import numpy as np

from edgewright.backends.nxp.lower import NeutronLowering, result, scale_of, zero_of
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.flatten_images import flatten_permutation
from edgewright.lowering.passes.layout import common_order, identity
from edgewright.lowering.passes.view_order import permuted_order, squeezed_order


def same(low: NeutronLowering, op: Op) -> None:
    """A copy that changes nothing: another name."""
    x, out = next(iter(op.args.values())), result(op)
    if not low.flat_again(x, out):
        for order in low.orders(x) or [identity(len(x.shape))]:
            low.alias(out, order, low.get(x, order))


def permute(low: NeutronLowering, op: Op) -> None:
    """Another name for what is there."""
    x, out = op.args["self"], result(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, permuted_order(op, order), low.get(x, order))


def view(low: NeutronLowering, op: Op) -> None:
    """Another shape. Rows of a flattened image wait: who multiplies them with weights can take any order."""
    x, out = op.args["self"], result(op)

    def in_order() -> Value:
        return low.reshaped(low.get(x), out.bound)

    known = next(iter(low.orders(x)), None)
    places = flatten_permutation(x, out, known)
    if places is None:
        low.alias(out, identity(len(out.shape)), in_order())
        return
    low.flatten_later(out, low.reshaped(low.get(x, known), out.bound), places, in_order)


def squeeze(low: NeutronLowering, op: Op) -> None:
    """Sizes of 1 go, or come, in whatever order the others are held."""
    x, out = op.args["self"], result(op)
    order = common_order(low, op, len(x.shape))
    final = squeezed_order(op, order)
    low.alias(out, final, low.reshaped(low.get(x, order), [out.bound[d] for d in final]))


def places_of(op: Op) -> list[int]:
    """What an operator reads of its dimension: what it makes of the numbers 0, 1, 2 …"""
    x, dim = op.args["self"], op.args.get("dim", 0)
    made = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})[0]
    return [int(n) for n in np.atleast_1d(made)]


def part(low: NeutronLowering, op: Op) -> None:
    """``slice``, ``narrow`` and ``select``: neighbours along one dimension."""
    x, out = op.args["self"], result(op)
    rank = len(x.shape)
    dim, order, places = op.args.get("dim", 0) % rank, common_order(low, op, rank), places_of(op)
    held = low.get(x, order)
    start, size = [0] * rank, list(held.bound)
    start[order.index(dim)], size[order.index(dim)] = places[0], len(places)
    made = low.sliced(held, start, size)
    if len(out.shape) < rank:
        order = tuple(d - (d > dim) for d in order if d != dim)
    low.alias(out, order, low.reshaped(made, [out.bound[d] for d in order]))


def widths_of(op: Op) -> list[tuple[int, int]]:
    """Padding before and after each dimension; the arguments start with the last one."""
    given = list(op.args["pad"] if "pad" in op.args else op.args["padding"])
    pairs = [(int(a), int(b)) for a, b in zip(given[::2], given[1::2], strict=True)]
    return [(0, 0)] * (len(op.args["self"].shape) - len(pairs)) + pairs[::-1]


def pad(low: NeutronLowering, op: Op) -> None:
    x = op.args["self"]
    order, widths = common_order(low, op, len(x.shape)), widths_of(op)
    value = round(float(op.args.get("value") or 0) / scale_of(x)) + zero_of(x)
    made = low.padded(low.get(x, order), [widths[d] for d in order], min(127, max(-128, value)))
    low.alias(result(op), order, made)


def mirror(low: NeutronLowering, op: Op) -> None:
    """The image's own elements, mirrored at its edge."""
    x, out = op.args["self"], result(op)
    order, widths = common_order(low, op, len(x.shape)), widths_of(op)
    operands = [low.get(x, order), low.numbers([list(widths[d]) for d in order])]
    low.alias(out, order, low.node("MIRROR_PAD", [out.bound[d] for d in order], out.q, operands, mode=0))


def cat(low: NeutronLowering, op: Op) -> None:
    out = result(op)
    rank = len(out.shape)
    order = common_order(low, op, rank)
    held = [low.get(v, order) for v in op.args["tensors"]]
    axis = order.index(op.args.get("dim", 0) % rank)
    low.alias(out, order, low.node("CONCATENATION", [out.bound[d] for d in order], out.q, held, axis=axis))
