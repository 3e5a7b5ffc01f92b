"""Vendors' operators that pick elements or rows: repeated, reversed, mirrored, resized, or by lists of places."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.dialects.picks import PICKS, picked
from edgewright.engine.fuse import Node
from edgewright.engine.kernels.picks import Lists, Picks, emit_lay, emit_picks, emit_take
from edgewright.engine.layout import Home
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.moves import copy
from edgewright.engine.requantize import shift_of
from edgewright.engine.whole import NotWholeError
from edgewright.ir.graph import Array, Value

_NANOSECONDS = 3.0  # for one run, and for 16 bytes of it


def alike(a: Value, b: Value) -> bool:
    """Their elements are stored as the same bytes."""
    if a.dtype != b.dtype or (a.q is None) != (b.q is None) or a.dtype is None:
        return False
    return a.q is None or b.q is None or shift_of(a.q) == shift_of(b.q)


class Picked(Lowering):
    """Elements of one operand, at places that are known now."""

    exact_reads = True

    def __init__(self, node: Node, data: Value, lists: list[Array]) -> None:
        super().__init__(node)
        self.data, self.lists = data, lists

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        if node.op.kind not in PICKS or len(node.ops) > 1 or not node.out.bound or 0 in node.out.bound:
            return None
        try:
            data, lists = picked(node.op)
        except (NotWholeError, ValueError, LookupError):
            return None
        return cls(node, data, lists) if alike(data, node.out) else None

    def emit(self, context: Context) -> None:
        data, out = context.home(self.data), context.home(self.node.out)
        lists = [places.astype(np.int64) * step for places, step in zip(self.lists, data.layout.strides, strict=True)]
        shape, strides, run = list(out.layout.shape), list(out.layout.strides), out.layout.item
        while len(shape) > 1 and strides[-1] == run and np.array_equal(lists[-1], np.arange(shape[-1]) * run):
            run *= shape.pop()  # all of a row, which lies in one piece on both sides
            strides.pop()
            lists.pop()
        picks = Picks(tuple(shape), tuple(strides), run)
        name = context.kernel("picks", picks, lambda module, name: emit_picks(module, name, picks))
        slots = [data.at(), out.at(), *(context.weights.add(places.view(np.uint8)) for places in lists)]
        work = math.prod(shape) * _NANOSECONDS * (1 + run / 16)
        context.step(name, slots, picks.units, work)


class _Listed(Lowering):
    """What TOSA's gather and scatter have in common: ``[batch, size, channels]`` and ``[batch, count]`` places."""

    exact_reads = True

    @staticmethod
    def lists(whole: Home, rows: Home, places: Home) -> Lists:
        batch, size, channels = whole.layout.shape
        (wide, tall, _), (across, along, _), (down, step) = (h.layout.strides for h in (whole, rows, places))
        return Lists(batch, size, rows.layout.shape[1], channels * whole.layout.item, (wide, tall), (across, along),
                     (down, step))  # fmt: skip

    @staticmethod
    def fits(whole: Value, rows: Value, places: Value) -> bool:
        ranks = (len(whole.bound), len(rows.bound), len(places.bound)) == (3, 3, 2)
        if not ranks or places.dtype != np.dtype(np.int32) or not alike(whole, rows):
            return False
        (batch, size, channels), (count, length) = whole.bound, places.bound
        return rows.bound == (batch, length, channels) and count == batch and 0 not in (batch, size, channels, length)


class Taken(_Listed):
    """gather."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        if op.kind != "tosa.gather" or len(node.ops) > 1:
            return None
        return cls(node) if cls.fits(op.args["values"], node.out, op.args["indices"]) else None

    def emit(self, context: Context) -> None:
        op = self.node.op
        whole, places, rows = (context.home(v) for v in (op.args["values"], op.args["indices"], self.node.out))
        lists = self.lists(whole, rows, places)
        name = context.kernel("take", lists, lambda module, name: emit_take(module, name, lists))
        units = lists.batch * lists.count
        context.step(name, [whole.at(), places.at(), rows.at()], units, units * _NANOSECONDS * (1 + lists.run / 16))


class Laid(_Listed):
    """scatter: a copy, with rows written over."""

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        if op.kind != "tosa.scatter" or len(node.ops) > 1:
            return None
        values, rows = op.args["values"], op.args["input"]
        fits = cls.fits(values, rows, op.args["indices"]) and alike(values, node.out) and values.bound == node.out.bound
        return cls(node) if fits else None

    def emit(self, context: Context) -> None:
        op, out = self.node.op, context.home(self.node.out)
        rows, places = context.home(op.args["input"]), context.home(op.args["indices"])
        copy(context, context.home(op.args["values"]), out)
        context.barrier = True
        lists = self.lists(out, rows, places)
        name = context.kernel("lay", lists, lambda module, name: emit_lay(module, name, lists))
        work = lists.batch * lists.count * _NANOSECONDS * (1 + lists.run / 16)
        context.step(name, [rows.at(), places.at(), out.at()], lists.batch, work)
