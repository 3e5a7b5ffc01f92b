"""Lowering of data movement: reshapes, permutations, slices, padding, concatenation."""

from __future__ import annotations

import numpy as np

from edgewright.backends.nxp.lower import NeutronLowering, output, scale_of, zero_point
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import (
    common_order,
    flatten_permutation,
    identity,
    permuted_order,
    squeezed_order,
)


def forward_input(low: NeutronLowering, op: Op) -> None:
    """No operator: the output is an alias of the input."""
    x, out = next(iter(op.args.values())), output(op)
    if not low.alias_deferred(x, out):
        for order in low.orders(x) or [identity(len(x.shape))]:
            low.alias(out, order, low.get(x, order))


def permute(low: NeutronLowering, op: Op) -> None:
    """No operator: the output is an alias with permuted dimension order."""
    x, out = op.args["self"], output(op)
    for order in low.orders(x) or [identity(len(x.shape))]:
        low.alias(out, permuted_order(op, order), low.get(x, order))


def view(low: NeutronLowering, op: Op) -> None:
    """Reshape. Flattening an image is deferred: a fully connected layer can permute its weight's columns instead of
    transposing the image."""
    x, out = op.args["self"], output(op)

    def in_original_order() -> Value:
        return low.reshape(low.get(x), out.bound)

    order = next(iter(low.orders(x)), None)
    indices = flatten_permutation(x, out, order)
    if indices is None:
        low.alias(out, identity(len(out.shape)), in_original_order())
        return
    low.defer_flatten(out, low.reshape(low.get(x, order), out.bound), indices, in_original_order)


def squeeze(low: NeutronLowering, op: Op) -> None:
    """``squeeze`` and ``unsqueeze`` keep the dimension order of the input."""
    x, out = op.args["self"], output(op)
    order = common_order(low, op, len(x.shape))
    final = squeezed_order(op, order)
    low.alias(out, final, low.reshape(low.get(x, order), [out.bound[d] for d in final]))


def selected_indices(op: Op) -> list[int]:
    """Indices that an operator selects along its dimension: its reference applied to 0, 1, 2, …"""
    x, dim = op.args["self"], op.args.get("dim", 0)
    indices = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})[0]
    return [int(n) for n in np.atleast_1d(indices)]


def slice_(low: NeutronLowering, op: Op) -> None:
    """``slice``, ``narrow`` and ``select`` of contiguous elements."""
    x, out = op.args["self"], output(op)
    rank = len(x.shape)
    dim, order, indices = op.args.get("dim", 0) % rank, common_order(low, op, rank), selected_indices(op)
    x_value = low.get(x, order)
    start, size = [0] * rank, list(x_value.bound)
    start[order.index(dim)], size[order.index(dim)] = indices[0], len(indices)
    sliced = low.slice(x_value, start, size)
    if len(out.shape) < rank:
        order = tuple(d - (d > dim) for d in order if d != dim)
    low.alias(out, order, low.reshape(sliced, [out.bound[d] for d in order]))


def pad_widths(op: Op) -> list[tuple[int, int]]:
    """Padding before and after each dimension; the ATen argument starts with the last dimension."""
    flat = list(op.args["pad"] if "pad" in op.args else op.args["padding"])
    pairs = [(int(a), int(b)) for a, b in zip(flat[::2], flat[1::2], strict=True)]
    return [(0, 0)] * (len(op.args["self"].shape) - len(pairs)) + pairs[::-1]


def pad(low: NeutronLowering, op: Op) -> None:
    x = op.args["self"]
    order, widths = common_order(low, op, len(x.shape)), pad_widths(op)
    value = round(float(op.args.get("value") or 0) / scale_of(x)) + zero_point(x)
    padded = low.pad(low.get(x, order), [widths[d] for d in order], min(127, max(-128, value)))
    low.alias(output(op), order, padded)


def mirror_pad(low: NeutronLowering, op: Op) -> None:
    """Reflection padding."""
    x, out = op.args["self"], output(op)
    order, widths = common_order(low, op, len(x.shape)), pad_widths(op)
    operands = [low.get(x, order), low.int_constant([list(widths[d]) for d in order])]
    low.alias(out, order, low.node("MIRROR_PAD", [out.bound[d] for d in order], out.q, operands, mode=0))


def cat(low: NeutronLowering, op: Op) -> None:
    out = output(op)
    rank = len(out.shape)
    order = common_order(low, op, rank)
    parts = [low.get(v, order) for v in op.args["tensors"]]
    axis = order.index(op.args.get("dim", 0) % rank)
    low.alias(out, order, low.node("CONCATENATION", [out.bound[d] for d in order], out.q, parts, axis=axis))
