"""Conversion of uint16 tensors to int16 with a zero point 32768 lower, which represents the same values.

NaN is stored as integer 0 of the declared type, which has no int16 counterpart of the same meaning. So an operator that
may produce NaN keeps its uint16 result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.backends.samsung.dialect.numerics import round_to_fp16
from edgewright.backends.samsung.dialect.table import PREFIX
from edgewright.backends.samsung.dialect.to_core.rewrite import UNLIMITED
from edgewright.ir.graph import Graph, Op, Value

_HALF = 1 << 15
_UNSIGNED, _SIGNED = np.dtype(np.uint16), np.dtype(np.int16)
_NAN_KINDS = {
    PREFIX + name for name in ("ELTDIV", "POW", "LOG", "SQRT", "RSQRT")
}  # may produce NaN from finite operands


def uint16_to_int16(graph: Graph) -> Graph:
    """Replace uint16 tensors except graph inputs, outputs, and results that may be NaN."""
    replacements = {v: _as_int16(v) for v in graph.values() if v.q is not None and v.dtype == _UNSIGNED}
    if not replacements:
        return graph

    def remap(arg: Any) -> Any:
        if isinstance(arg, list | tuple):
            return type(arg)(remap(g) for g in arg)
        return replacements.get(arg, arg) if isinstance(arg, Value) else arg

    read = {v for op in graph.ops for v in op.inputs()}
    available = set(graph.inputs)  # as the graph has them
    ops = [_convert(v, replacements[v]) for v in graph.inputs if v in replacements]
    for op in graph.ops:
        outputs = list(op.outputs) if _may_be_nan(op) else [remap(v) for v in op.outputs]
        ops.append(Op(op.kind, {n: remap(a) for n, a in op.args.items()}, outputs, op.origin))
        unsigned_results = [v for v in outputs if v is not None and v in replacements]
        ops += [_convert(v, replacements[v]) for v in unsigned_results if v in read]
        available |= set(unsigned_results)
    outputs_list = list(graph.outputs)
    ops += [
        _convert(replacements[v], v) for v in dict.fromkeys(outputs_list) if v in replacements and v not in available
    ]
    return Graph(graph.name, graph.inputs, outputs_list, ops)


def _may_be_nan(op: Op) -> bool:
    """Whether a result may be NaN: by its operator, or because of float operands that are not known to be finite."""
    if op.kind in _NAN_KINDS or not np.float32(op.args.get("epsilon", 1)) > 0:
        return True
    floats = [v for v in op.inputs() if v.q is None and v.dtype is not None and v.dtype.kind == "f"]
    return not all(v.data is not None and np.isfinite(round_to_fp16(v.data)).all() for v in floats)


def _as_int16(value: Value) -> Value:
    q = value.q
    assert q is not None
    zero_point: Any = (
        tuple(int(z) - _HALF for z in q.zero_point) if isinstance(q.zero_point, tuple) else q.zero_point - _HALF
    )
    data = None if value.data is None else (value.data.astype(np.int32) - _HALF).astype(np.int16)
    q = replace(q, zero_point=zero_point, dtype=_SIGNED, qmin=q.qmin - _HALF, qmax=q.qmax - _HALF)
    return replace(value, dtype=_SIGNED, data=data, q=q)


def _convert(x: Value, out: Value) -> Op:
    """A CLIP without limits, which only changes the storage type."""
    return Op(f"{PREFIX}CLIP", {"inputs": [x], **UNLIMITED}, [out])
