"""Keeps the input scale for global averages that are pooled in 8 bits, where a finer output scale has no effect.

AVG_POOL2D rounds to the steps of its input. Requantizing its result to a finer scale is an extra operation without
extra precision if only convolutions and matrix products, which accept any scale, read it.
"""

from __future__ import annotations

from typing import Any

from edgewright.backends.ethos_u.pool import prefers_avg_pool
from edgewright.backends.table import reduced_dims
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.ir.graph import Graph, Op, Value

_MATMULS = ("linear", "conv1d", "conv2d")


def keep_input_scale(graph: Graph, target: Any) -> None:
    """Give global averages the quantization of their input if only matrix products read them."""
    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in op.inputs():
            readers.setdefault(value, []).append(op)
    outputs = set(graph.outputs)
    for op in graph.ops:
        x, out = op.args.get("self"), op.outputs[0]
        if not isinstance(x, Value) or out is None or "limits" in op.args or not _is_global_mean(op):
            continue
        chain = _reshape_chain(out, readers, outputs)
        if chain is not None and prefers_avg_pool(x, out, x.bound[-2:], target):
            for value in chain:
                value.q = x.q


def _is_global_mean(op: Op) -> bool:
    if op.kind == "adaptive_avg_pool2d":
        return list(op.args["output_size"]) == [1, 1]
    return op.kind == "mean" and len(op.args["self"].shape) == 4 and reduced_dims(op) == [2, 3]


def _reshape_chain(value: Value, readers: dict[Value, list[Op]], outputs: set[Value]) -> list[Value] | None:
    """A value and its reshapes, if only matrix products read them; otherwise None."""
    if value in outputs:
        return None
    chain = [value]
    for op in readers.get(value, []):
        if op.kind in _MATMULS and op.args["input"] is value:
            continue
        row = OPS.get(op.kind)
        out = op.outputs[0] if row is not None and row.op_class is OpClass.RESHAPE else None
        rest = _reshape_chain(out, readers, outputs) if out is not None and out.q == value.q else None
        if rest is None:
            return None
        chain += rest
    return chain
