"""Executes a TOSA graph with numpy: the bit-exact reference of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewright.ir.analysis import last_uses
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.tosa.table import PREFIX, TOSA


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Outputs for ``inputs``; arrays are released after their last use."""
    arrays: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for op, dead in last_uses(graph).items():
        out = op.outputs[0]
        assert out is not None
        result = run_op(op, arrays)
        if result.shape != out.bound:
            raise GraphError(f"{op.kind} {out.name!r}", f"must give the shape {out.bound}", value=result.shape)
        arrays[out] = result if result.dtype == out.dtype else result.astype(out.dtype)
        for value in dead:
            arrays.pop(value, None)
    return [_array(v, arrays) for v in graph.outputs]


def has_op(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in TOSA


def run_op(op: Op, arrays: Mapping[Value, Array], numerics: str = "tosa") -> Array:
    """Result of one operator. TOSA defines the rounding, so ``numerics`` is ignored."""
    row = TOSA[op.kind.removeprefix(PREFIX)]
    args: dict[str, Any] = dict(op.args)
    for name in row.tensors:
        operand = args[name]
        args[name] = [_array(v, arrays) for v in operand] if isinstance(operand, list) else _array(operand, arrays)
    result: Array = row.reference(**args)
    return result


def _array(value: Value, arrays: Mapping[Value, Array]) -> Array:
    if value.data is not None:
        return value.data
    return arrays[value]
