"""fp16 models. The HTP computes all floating-point tensors in fp16 and the lowering expects float32 tensors, so a graph
with fp16 inputs or outputs casts at its boundary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Graph, Op, Value

FP16, FP32 = np.dtype(np.float16), np.dtype(np.float32)


def cast_boundary(group: Graph) -> Graph:
    """A graph with the same inputs and outputs and float32 in between; the graph itself if it has no fp16 tensors."""
    fp16_values = [v for v in group.values() if v.q is None and v.dtype == FP16]
    if not fp16_values:
        return group
    fp32 = {v: replace(v, dtype=FP32, data=None if v.data is None else v.data.astype(FP32)) for v in fp16_values}
    before = [_cast(v, fp32[v], ScalarType.FLOAT32) for v in group.inputs if v in fp32]
    inside = [_replace_values(op, fp32) for op in group.ops]
    after = [_cast(fp32[v], v, ScalarType.FLOAT16) for v in dict.fromkeys(group.outputs) if v in fp32]
    return Graph(group.name, [*group.inputs], [*group.outputs], [*before, *inside, *after])


def _cast(x: Value, out: Value, dtype: ScalarType) -> Op:
    return Op("cast", {"self": x, "dtype": int(dtype)}, [out])


def _replace_values(op: Op, fp32: dict[Value, Value]) -> Op:
    """A copy of an operator with other operands and outputs."""

    def substitute(argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(substitute(v) for v in argument)
        return fp32.get(argument, argument) if isinstance(argument, Value) else argument

    return replace(
        op, args={name: substitute(v) for name, v in op.args.items()}, outputs=[substitute(o) for o in op.outputs]
    )
