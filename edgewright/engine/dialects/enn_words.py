"""Unsigned integers of 16 bits as signed ones, 32768 lower: what they stand for stays what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.enn_rewrite import UNLIMITED
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value

_HALF = 1 << 15
_UNSIGNED, _SIGNED = np.dtype(np.uint16), np.dtype(np.int16)


def signed(graph: Graph) -> Graph:
    """The graph without unsigned integers of 16 bits, but where they come in and go out."""
    moved = {id(v): _lower(v) for v in graph.values() if v.q is not None and v.dtype == _UNSIGNED}
    if not moved:
        return graph

    def new(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(new(g) for g in given)
        return moved.get(id(given), given) if isinstance(given, Value) else given

    ops = [_same(v, moved[id(v)]) for v in graph.inputs if id(v) in moved]
    for op in graph.ops:
        ops.append(Op(op.kind, {n: new(a) for n, a in op.args.items()}, [new(v) for v in op.outputs], op.origin))
    ends = list(graph.outputs)
    for value in ends:
        if id(value) in moved and not any(value is v for v in graph.inputs):
            ops.append(_same(moved[id(value)], value))
    return Graph(graph.name, graph.inputs, ends, ops)


def _lower(value: Value) -> Value:
    q = value.q
    assert q is not None
    zero: Any = tuple(int(z) - _HALF for z in q.zero_point) if isinstance(q.zero_point, tuple) else q.zero_point - _HALF
    data = None if value.data is None else (value.data.astype(np.int32) - _HALF).astype(np.int16)
    q = replace(q, zero_point=zero, dtype=_SIGNED, qmin=q.qmin - _HALF, qmax=q.qmax - _HALF)
    return replace(value, dtype=_SIGNED, data=data, q=q)


def _same(x: Value, out: Value) -> Op:
    """The same numbers, stored otherwise."""
    return Op(f"{PREFIX}CLIP", {"inputs": [x], **UNLIMITED}, [out])
