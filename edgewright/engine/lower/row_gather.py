"""Rows at places that are known when the graph runs: embeddings, indexing, writing to a cache; TOSA's too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels.row_gather import RowGatherSpec, emit_index_check, emit_row_gather, emit_row_scatter
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.engine.lower.static_gather import same_storage
from edgewright.engine.plan import Address, BoundsCheck
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.graph import Op, Value

_WHOLE = (np.dtype(np.int64), np.dtype(np.int32))
_NANOSECONDS = 5.0  # for one row; a byte of it takes the hundredth part


def _indexed(op: Op) -> tuple[Value, int, Value] | None:
    """The tensor, the dimension and the places of an operator on one dimension."""
    if op.kind == "embedding":
        return op.args["weight"], 0, op.args["indices"]
    if op.kind == "index_select":
        data = op.args["self"]
        return data, int(op.args["dim"]) % max(len(data.bound), 1), op.args["index"]
    if op.kind not in ("index", "index_put"):
        return None
    named = [(d, v) for d, v in enumerate(op.args["indices"]) if v is not None]
    return (op.args["self"], *named[0]) if len(named) == 1 else None


def _places(op: Op) -> tuple[Value, Value, RowGatherSpec] | None:
    found = _indexed(op)
    if found is None:
        return None
    data, dim, index = found
    shape = [int(n) for n in data.bound]
    plain = (data.q is None or data.q.axis is None) and index.q is None and index.dtype in _WHOLE
    if not plain or dim >= len(shape) or data.dtype is None or index.dtype is None:
        return None
    run, item = math.prod(shape[dim + 1 :]) * data.dtype.itemsize, index.dtype.itemsize
    outer, size, count = math.prod(shape[:dim]), shape[dim], math.prod(int(n) for n in index.bound)
    skips = op.kind == "index_put" and isinstance(op.args.get("outside"), OutOfRangePolicy)
    return (
        data,
        index,
        RowGatherSpec(outer, size, count, run, item, (size * run, run), (count * run, run), (0, item), skips),
    )


def _look(context: LoweringContext, outside: OutOfRangePolicy | None, listed: Storage, places: RowGatherSpec) -> None:
    """Have places looked at, if those that are not there are somebody's error."""
    if outside is None or not outside.subject:
        return
    context.checks.append(BoundsCheck(outside, places.size))
    least, (line, step), item = outside.least(places.size), places.places, places.item
    name = context.kernel("inside", item, lambda module, name: emit_index_check(module, name, item))
    lines = places.outer if line else 1
    numbers = (places.count, line, step, least, places.size - least, len(context.checks))
    context.step(name, [listed.at(), Address("arena", context.error_slot), *numbers], lines, lines * places.count * 1.0)


def _step(
    context: LoweringContext, homes: tuple[Storage, Storage, Storage], places: RowGatherSpec, emit: Callable[..., None]
) -> None:
    """``homes``: the tensor, places and rows, in the order of the kernel's slots."""

    def build(module: Module, name: str) -> None:
        emit(module, name, *places.code)

    reads = emit is emit_row_gather
    name = context.kernel("gather" if reads else "put", places.code, build)
    work = places.outer * places.count * (_NANOSECONDS + places.run * _NANOSECONDS / 100)
    units = places.outer * places.count if reads else places.outer
    context.step(name, [*(h.at() for h in homes), *places.numbers], units, work)


class RowGather(DenseLowering):
    """embedding, index_select, and index by one list of places."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        found = _places(node.op) if is_unfused(node, "embedding", "index_select", "index") else None
        fits = found is not None and found[0].dtype == node.out.dtype and found[0].q == node.out.q
        return cls(node) if fits else None

    def emit(self, context: LoweringContext) -> None:
        found = _places(self.node.op)
        assert found is not None
        data, index, places = found
        _look(context, self.node.op.args.get("outside"), context.home(index), places)
        _step(context, (context.home(data), context.home(index), context.home(self.node.out)), places, emit_row_gather)


class RowScatter(DenseLowering):
    """index_put at one list of places: a copy, unless it lies there already, with rows written over."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        found = _places(op) if is_unfused(node, "index_put") and not op.args.get("accumulate") else None
        if found is None:
            return None
        data, _, places = found
        values: Value = op.args["values"]
        fits = values.q is None and data.q is None and values.dtype == data.dtype == node.out.dtype
        size = math.prod(int(n) for n in values.bound) * (values.dtype.itemsize if values.dtype is not None else 0)
        return cls(node) if fits and size == places.outer * places.count * places.run else None

    def emit(self, context: LoweringContext) -> None:
        found, out = _places(self.node.op), context.home(self.node.out)
        assert found is not None
        data, index, places = found
        if context.home(data).address != out.address:
            emit_copy(context, context.home(data), out)
            context.barrier = True
        _step(context, (context.home(self.node.op.args["values"]), context.home(index), out), places, emit_row_scatter)


class _BatchedRows(Lowering):
    """What TOSA's gather and scatter have in common: ``[batch, size, channels]`` and ``[batch, count]`` places."""

    exact_reads = True

    @property
    def refused(self) -> OutOfRangePolicy:
        return OutOfRangePolicy(f"{self.node.op.kind} {self.node.out.name!r}", wrap=True)

    @staticmethod
    def places(whole: Storage, rows: Storage, listed: Storage) -> RowGatherSpec:
        batch, size, channels = whole.layout.shape
        count, run = rows.layout.shape[1], channels * whole.layout.item
        (wide, tall, _), (across, along, _), (down, step) = (h.layout.strides for h in (whole, rows, listed))
        return RowGatherSpec(batch, size, count, run, listed.layout.item, (wide, tall), (across, along), (down, step))

    @staticmethod
    def fits(whole: Value, rows: Value, places: Value) -> bool:
        ranks = (len(whole.bound), len(rows.bound), len(places.bound)) == (3, 3, 2)
        if not ranks or places.dtype != np.dtype(np.int32) or not same_storage(whole, rows):
            return False
        (batch, size, channels), (count, length) = whole.bound, places.bound
        return rows.bound == (batch, length, channels) and count == batch and 0 not in (batch, size, channels, length)


class TosaGather(_BatchedRows):
    """gather."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        args = node.op.args
        fits = is_unfused(node, "tosa.gather") and cls.fits(args["values"], node.out, args["indices"])
        return cls(node) if fits else None

    def emit(self, context: LoweringContext) -> None:
        args = self.node.op.args
        whole, listed, rows = (context.home(v) for v in (args["values"], args["indices"], self.node.out))
        places = self.places(whole, rows, listed)
        _look(context, self.refused, listed, places)
        _step(context, (whole, listed, rows), places, emit_row_gather)


class TosaScatter(_BatchedRows):
    """scatter: a copy, with rows written over."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        if not is_unfused(node, "tosa.scatter"):
            return None
        values, rows, places = (node.op.args[name] for name in ("values", "input", "indices"))
        fits = cls.fits(values, rows, places) and same_storage(values, node.out) and values.bound == node.out.bound
        return cls(node) if fits else None

    def emit(self, context: LoweringContext) -> None:
        args, out = self.node.op.args, context.home(self.node.out)
        emit_copy(context, context.home(args["values"]), out)
        context.barrier = True
        rows, listed = context.home(args["input"]), context.home(args["indices"])
        places = self.places(out, rows, listed)
        _look(context, self.refused, listed, places)
        _step(context, (rows, listed, out), places, emit_row_scatter)
