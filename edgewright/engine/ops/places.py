"""Rows at places that are known when the graph runs: embeddings, indexing, writing to a cache."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.fuse import Node
from edgewright.engine.kernels.places import Places, emit_gather, emit_put
from edgewright.engine.ops.base import Context, Lowering
from edgewright.engine.ops.moves import copy
from edgewright.ir.graph import Op, Value

_WHOLE = (np.dtype(np.int64), np.dtype(np.int32))


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


def _places(op: Op) -> tuple[Value, Value, Places] | None:
    found = _indexed(op)
    if found is None:
        return None
    data, dim, index = found
    shape = [int(n) for n in data.bound]
    plain = (data.q is None or data.q.axis is None) and index.q is None and index.dtype in _WHOLE
    if not plain or dim >= len(shape) or data.dtype is None or index.dtype is None:
        return None
    inner = math.prod(shape[dim + 1 :]) * data.dtype.itemsize
    count = math.prod(int(n) for n in index.bound)
    return data, index, Places(math.prod(shape[:dim]), shape[dim], count, inner, index.dtype.itemsize)


class Gather(Lowering):
    """embedding, index_select, and index by one list of places."""

    exact_reads = True
    any_strides = False
    wants_dense = True

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        found = _places(node.op) if node.op.kind != "index_put" and len(node.ops) == 1 else None
        fits = found is not None and found[0].dtype == node.out.dtype and found[0].q == node.out.q
        return cls(node) if fits and node.op.args.get("limits") is None else None

    def emit(self, context: Context) -> None:
        found = _places(self.node.op)
        assert found is not None
        data, index, places = found
        name = context.kernel("gather", places.code, lambda module, name: emit_gather(module, name, *places.code))
        units = places.outer * places.count
        slots = [context.home(v).at() for v in (data, index, self.node.out)]
        context.step(name, [*slots, places.count, places.size], units, units * (5 + places.inner * 0.05))


class Put(Lowering):
    """index_put at one list of places: a copy, unless it lies there already, with rows written over."""

    exact_reads = True
    any_strides = False
    wants_dense = True

    @classmethod
    def accept(cls, node: Node, context: Context) -> Lowering | None:
        op = node.op
        found = _places(op) if op.kind == "index_put" and len(node.ops) == 1 and not op.args.get("accumulate") else None
        if found is None:
            return None
        data, _, places = found
        values: Value = op.args["values"]
        fits = values.q is None and data.q is None and values.dtype == data.dtype == node.out.dtype
        size = math.prod(int(n) for n in values.bound) * (values.dtype.itemsize if values.dtype is not None else 0)
        return cls(node) if fits and size == places.outer * places.count * places.inner else None

    def emit(self, context: Context) -> None:
        found, out = _places(self.node.op), context.home(self.node.out)
        assert found is not None
        data, index, places = found
        if context.home(data).place != out.place:
            copy(context, context.home(data), out)
            context.barrier = True
        name = context.kernel("put", places.code, lambda module, name: emit_put(module, name, *places.code))
        slots = [*(context.home(v).at() for v in (self.node.op.args["values"], index)), out.at()]
        cost = places.outer * places.count * (5 + places.inner * 0.05)
        context.step(name, [*slots, places.count, places.size], places.outer, cost)
