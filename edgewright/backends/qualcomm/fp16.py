"""fp16 models. The HTP computes all floating-point tensors in fp16 and the lowering expects float32 tensors, so a graph
with fp16 inputs or outputs casts at its boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Graph, Op, Value

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def with_cast_ends(group: Graph) -> Graph:
    """A graph of the same inputs and outputs, without halves between them; the graph itself if it has none."""
    halves = [v for v in group.values() if v.q is None and v.dtype == HALF]
    if not halves:
        return group
    wide = {v: replace(v, dtype=SINGLE, data=None if v.data is None else v.data.astype(SINGLE)) for v in halves}
    before = [_cast(v, wide[v], ScalarType.FLOAT32) for v in group.inputs if v in wide]
    inside = [_of(op, wide) for op in group.ops]
    after = [_cast(wide[v], v, ScalarType.FLOAT16) for v in dict.fromkeys(group.outputs) if v in wide]
    return Graph(group.name, [*group.inputs], [*group.outputs], [*before, *inside, *after])


def _cast(x: Value, out: Value, dtype: ScalarType) -> Op:
    return Op("cast", {"self": x, "dtype": int(dtype)}, [out])


def _of(op: Op, wide: dict[Value, Value]) -> Op:
    """The operator, of and to other values."""

    def other(given: Any) -> Any:
        if isinstance(given, list | tuple):
            return type(given)(other(v) for v in given)
        return wide.get(given, given) if isinstance(given, Value) else given

    return replace(op, args={name: other(v) for name, v in op.args.items()}, outputs=[other(o) for o in op.outputs])
