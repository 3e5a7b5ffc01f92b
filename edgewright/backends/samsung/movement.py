"""Lowering of what moves elements, and of reading at places that other tensors name."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgewright.backends.samsung.lower import EnnLowering, result
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Op, Value
from edgewright.lowering.passes.layout import identity


def same(low: EnnLowering, op: Op) -> None:
    """Nothing moves: the result is another name."""
    x, out = op.args["self" if "self" in op.args else "input"], result(op)
    low.alias(out, identity(len(out.shape)), low.stored_as(low.get(x), out))


def view(low: EnnLowering, op: Op) -> None:
    low.move(op, "RESHAPE", low.get(op.args["self"]), new_shape=list(result(op).bound))


def permute(low: EnnLowering, op: Op) -> None:
    """``permute``, ``transpose`` and ``t``."""
    rank = len(op.args["self"].shape)
    if op.kind == "permute":
        dims = [d % rank for d in op.args["dims"]]
    else:
        pair = (0, 1) if op.kind == "t" else (op.args["dim0"], op.args["dim1"])
        first, second = (d % rank for d in pair) if rank > 1 else (0, 0)
        dims = list(range(rank))
        dims[first], dims[second] = dims[second], dims[first]
    low.move(op, "TRANSPOSE", low.get(op.args["self"]), perm=dims)


def _ranges(x: Value, dim: int, places: Any) -> dict[str, list[int]]:
    """Evenly spaced places of one dimension, and all of the others."""
    at = [int(p) for p in np.atleast_1d(places)]
    begin, end, strides = [0] * len(x.bound), list(x.bound), [1] * len(x.bound)
    strides[dim] = at[1] - at[0] if len(at) > 1 else 1
    begin[dim], end[dim] = at[0], min(at[0] + len(at) * strides[dim], x.bound[dim])
    return {"begin": begin, "end": end, "strides": strides}


def part(low: EnnLowering, op: Op) -> None:
    """``slice`` and ``narrow``; what they leave is found as the op table has it."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    places = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})[0]
    low.move(op, "STRIDEDSLICE", low.get(x), **_ranges(x, dim, places))


def select(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    dim = op.args["dim"] % len(x.shape)
    place = op.args["index"] % x.bound[dim]
    low.move(op, "STRIDEDSLICE", low.get(x), **_ranges(x, dim, [place]), shrink_axis_mask=1 << dim)


def split(low: EnnLowering, op: Op) -> None:
    """``split``, ``split_with_sizes`` and ``chunk``. Results that nobody reads are made all the same."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    parts = OPS[op.kind].call({**op.args, "self": np.arange(x.bound[dim]), "dim": 0})
    sizes, held = [len(p) for p in parts], low.get(x)
    outs = []
    for size, out in zip(sizes, [*op.outputs, *[None] * (len(sizes) - len(op.outputs))], strict=True):
        shape = [*x.bound[:dim], size, *x.bound[dim + 1 :]]
        outs.append(low.temporary(shape, held) if out is None else low.make(out))
    low.node("SPLIT", [held], outs, axis=dim, point=sizes)


def unbind(low: EnnLowering, op: Op) -> None:
    """One selection for each result that is read."""
    x = op.args["self"]
    dim = op.args.get("dim", 0) % len(x.shape)
    for place, out in enumerate(op.outputs):
        if out is not None:
            low.node("STRIDEDSLICE", [low.get(x)], low.make(out), **_ranges(x, dim, [place]), shrink_axis_mask=1 << dim)


def cat(low: EnnLowering, op: Op) -> None:
    tensors, out = [t for t in op.args["tensors"] if t.shape != (0,)], result(op)
    fixed = [i for i, t in enumerate(tensors) if t.constant]
    params = {"axis": op.args.get("dim", 0) % len(out.shape), **({"constant_index": fixed[0]} if fixed else {})}
    low.finish(op, "CONCAT", [low.stored_as(low.get(t), out) for t in tensors], **params)


def expand(low: EnnLowering, op: Op) -> None:
    """A repetition along each dimension that grows; new ones come first."""
    x, out = op.args["self"], result(op)
    held = low.get(x)
    whole = (1,) * (len(out.shape) - len(x.shape)) + held.bound
    grown = [d for d, (n, m) in enumerate(zip(whole, out.bound, strict=True)) if n != m]
    if not grown:
        low.move(op, "RESHAPE", held, new_shape=list(out.bound))
        return
    held = low.stored_as(low.reshaped(held, whole), out)
    for count, dim in enumerate(grown, 1):
        shape = list(held.bound)
        shape[dim] = out.bound[dim]
        made = low.make(out) if count == len(grown) else low.temporary(shape, held)
        low.node("CONCAT", [held] * out.bound[dim], made, axis=dim)
        held = made


def pad(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    rank, given = len(x.shape), list(op.args["pad"])
    pairs = [given[i : i + 2] for i in range(0, len(given), 2)][::-1]
    amounts = [[0, 0]] * (rank - len(pairs)) + pairs
    widths = [a for a, _ in amounts] + [b for _, b in amounts]
    held = low.stored_as(low.get(x), result(op))
    low.finish(op, "PAD", [held], explicit_padding=widths, padding="EXPLICIT", padding_type="CONSTANT")


def embedding(low: EnnLowering, op: Op) -> None:
    low.finish(op, "GATHER", [low.get(op.args["weight"]), low.get(op.args["indices"])], axis=0)


def index(low: EnnLowering, op: Op) -> None:
    """By one tensor of places; a rule sees to it."""
    axis, places = next((i, t) for i, t in enumerate(op.args["indices"]) if t is not None)
    low.finish(op, "GATHER", [low.get(op.args["self"]), low.get(places)], told=False, axis=axis)


def index_select(low: EnnLowering, op: Op) -> None:
    x = op.args["self"]
    axis = op.args["dim"] % len(x.shape)
    low.finish(op, "GATHER", [low.get(x), low.get(op.args["index"])], told=False, axis=axis)


def topk(low: EnnLowering, op: Op) -> None:
    x, count = op.args["self"], int(op.args["k"])
    values = op.outputs[0]
    places = op.outputs[1] if len(op.outputs) > 1 else None
    shape = (*x.bound[:-1], count)
    first = low.temporary(shape, low.get(x)) if values is None else low.make(values)
    like = Value("places", np.dtype(np.int64))
    second = low.temporary(shape, like) if places is None else low.make(places)
    low.node("TopK", [low.get(x)], [first, second], k_dims=count)
