"""Unsigned integers of 16 bits as signed ones, 32768 lower: what they stand for stays what it is.

What is no number is stored as 0 of the type that the graph has, which no signed integer stands for in the same way: an
operator that can make such a number gives its result unsigned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.engine.dialects.enn_rewrite import UNLIMITED
from edgewright.ir.enn.numerics import half
from edgewright.ir.enn.table import PREFIX
from edgewright.ir.graph import Graph, Op, Value

_HALF = 1 << 15
_UNSIGNED, _SIGNED = np.dtype(np.uint16), np.dtype(np.int16)
_UNSURE = {PREFIX + name for name in ("ELTDIV", "POW", "LOG", "SQRT", "RSQRT")}  # no number of some that are


def uint16_to_int16(graph: Graph) -> Graph:
    """The graph without unsigned integers of 16 bits, but where they come in, go out, or can be no number."""
    moved = {v: _lower(v) for v in graph.values() if v.q is not None and v.dtype == _UNSIGNED}
    if not moved:
        return graph

    def new(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(new(g) for g in given)
        return moved.get(given, given) if isinstance(given, Value) else given

    read = {v for op in graph.ops for v in op.inputs()}
    there = set(graph.inputs)  # as the graph has them
    ops = [_same(v, moved[v]) for v in graph.inputs if v in moved]
    for op in graph.ops:
        outputs = list(op.outputs) if _unsure(op) else [new(v) for v in op.outputs]
        ops.append(Op(op.kind, {n: new(a) for n, a in op.args.items()}, outputs, op.origin))
        kept = [v for v in outputs if v is not None and v in moved]
        ops += [_same(v, moved[v]) for v in kept if v in read]
        there |= set(kept)
    ends = list(graph.outputs)
    ops += [_same(moved[v], v) for v in dict.fromkeys(ends) if v in moved and v not in there]
    return Graph(graph.name, graph.inputs, ends, ops)


def _unsure(op: Op) -> bool:
    """Whether a result can be no number: by what is computed, or by real numbers that are not known to be finite."""
    if op.kind in _UNSURE or not np.float32(op.args.get("epsilon", 1)) > 0:
        return True
    reals = [v for v in op.inputs() if v.q is None and v.dtype is not None and v.dtype.kind == "f"]
    return not all(v.data is not None and np.isfinite(half(v.data)).all() for v in reals)


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
