"""Operators that pick elements: repeated, reversed, mirrored, resized. Lists say where along each dimension."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.codegen.ranged_int import IntRangeError
from edgewright.engine.codegen.requant import storage_offset
from edgewright.engine.dialects.static_gather import PICKS, picked
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.static_gather import StaticGatherSpec, emit_static_gather, offset_table
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Array, Op, Value

_NANOSECONDS = 3.0  # for one run, and for 16 bytes of it
_LONG = 64  # bytes of a run that is worth being a unit by itself
GATHER_OPS = {
    "flip", "roll", "repeat", "as_strided", "unfold", "diagonal", "reflection_pad", "replication_pad", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "upsample_nearest2d", "resize_nearest2d",
}  # fmt: skip


def same_storage(a: Value, b: Value) -> bool:
    """Their elements are stored as the same bytes."""
    if a.dtype != b.dtype or (a.q is None) != (b.q is None) or a.dtype is None:
        return False
    return a.q is None or b.q is None or storage_offset(a.q) == storage_offset(b.q)


def _pick(context: LoweringContext, data: Storage, out: Storage, lists: list[Array]) -> None:
    """``lists``: for each dimension of the result, the bytes to each element's place in ``data``."""
    varies = context.shared is not None  # then dimensions of 1 are kept: the next time they may be larger
    start = 0 if varies else sum(int(indices[0]) for indices in lists if len(indices) == 1)
    kept = [d for d, indices in enumerate(lists) if varies or len(indices) > 1]
    shape, strides = ([numbers[d] for d in kept] for numbers in (out.layout.shape, out.layout.strides))
    lists, run = [lists[d].astype(np.int64) for d in kept], out.layout.item
    while shape and (piece := _piece(lists[-1], run, strides[-1])):
        shape[-1], strides[-1], lists[-1], run = shape[-1] // piece, run * piece, lists[-1][::piece], run * piece
        if shape[-1] > 1:
            break
        start += int(lists.pop()[0])  # all of a row, which lies in one piece on both sides
        del shape[-1], strides[-1]
    work = math.prod(shape) * _NANOSECONDS * (1 + run / 16)
    if len(shape) < 2 or run >= _LONG:
        shape, strides, lists = [*shape, 1], [*strides, 0], [*lists, np.zeros(1, np.int64)]
    picks = (
        StaticGatherSpec(len(shape), run) if varies else StaticGatherSpec(len(shape), run, tuple(shape), tuple(strides))
    )
    name = context.kernel("picks", picks, lambda module, name: emit_static_gather(module, name, picks))
    numbers = context.weights.add(offset_table(shape, strides, lists))
    context.step(name, [data.at(start), out.at(), numbers], math.prod(shape[:-1]), work)


def _piece(indices: Array, run: int, stride: int) -> int:
    """How many runs lie side by side in both, wherever a row of so many begins; 0 if only one does, of several."""
    if len(indices) == 1:
        return 1
    breaks = np.flatnonzero(np.diff(indices) != run) + 1
    piece = math.gcd(len(indices), *breaks.tolist()) if stride == run else 1
    return piece if piece > 1 else 0


class VendorStaticGather(Lowering):
    """A vendor's: elements of one operand, at places along each of its dimensions that are known now."""

    exact_reads = True

    def __init__(self, node: Node, data: Value, lists: list[Array]) -> None:
        super().__init__(node)
        self.data, self.lists = data, lists

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not is_unfused(node, *PICKS) or not node.out.bound or 0 in node.out.bound:
            return None
        try:
            data, lists = picked(node.op)
        except (IntRangeError, ValueError, LookupError):
            return None
        return cls(node, data, lists) if same_storage(data, node.out) else None

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(self.data), context.home(self.node.out)
        lists = [indices.astype(np.int64) * step for indices, step in zip(self.lists, data.layout.strides, strict=True)]
        _pick(context, data, out, lists)


def _data(op: Op) -> Value:
    data: Value = op.args["input"] if "input" in op.args else op.args["self"]
    return data


def source_indices(op: Op) -> Array:
    """For each element of the result, which of the operand's it is: what the op table does to their numbers."""
    shape = _data(op).bound
    name = "input" if "input" in op.args else "self"
    counted: Any = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    given = {n: counted if n == name else v for n, v in op.args.items()}
    return np.asarray(OPS[op.kind].call(given)[0], np.int64)


def separable_indices(found: Array) -> list[Array] | None:
    """Places as sums of one number for each dimension, all but the first of which begin with 0; None if they are not.

    >>> lists_of(np.array([[5, 4], [2, 1]]))
    [array([5, 2]), array([ 0, -1])]
    """
    lists = [found[tuple(slice(None) if d == dim else 0 for d in range(found.ndim))] for dim in range(found.ndim)]
    lists = [*lists[:1], *(indices - indices[0] for indices in lists[1:])]
    total = np.zeros((), np.int64)
    for given in lists:
        total = np.add.outer(total, given)
    return lists if np.array_equal(total, found) else None


class StaticGather(DenseLowering):
    """Whatever moves elements in the op table: copies with strides where there are some, else by lists."""

    def __init__(self, node: Node, lists: list[Array]) -> None:
        super().__init__(node)
        self.lists = lists

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op, out = node.op, node.out
        if not is_unfused(node, *GATHER_OPS) or not out.bound or 0 in out.bound:
            return None
        data = _data(op)
        large = max(math.prod(v.bound) for v in (data, out))
        if data.q is not None or out.q is not None or data.dtype != out.dtype or data.constant:
            return None
        lists = None if 16 * large > context.memory else separable_indices(source_indices(op))
        return None if lists is None else cls(node, lists)

    def emit(self, context: LoweringContext) -> None:
        data, out = context.home(_data(self.node.op)), context.home(self.node.out)
        item = data.layout.item
        steps = [int(given[1] - given[0]) if len(given) > 1 else 0 for given in self.lists]
        if all(np.array_equal(g, g[0] + np.arange(len(g)) * s) for g, s in zip(self.lists, steps, strict=True)):
            layout = replace(data.layout, shape=out.layout.shape, strides=tuple(s * item for s in steps))
            start = sum(int(given[0]) for given in self.lists) * item
            emit_copy(context, replace(data, layout=layout, address=data.at(start)), out)
        else:
            _pick(context, data, out, [given * item for given in self.lists])
