"""Reference interpreter of ENN graphs in numpy, with the numerics ``enn`` (see ``numerics.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.ir.analysis import last_uses
from edgewright.ir.enn.numerics import Values
from edgewright.ir.enn.table import ENN, PREFIX
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Run a graph; intermediate values are freed after their last use."""
    values = Values(graph, list(inputs))
    for op, dead in last_uses(graph).items():
        ENN[op.kind.removeprefix(PREFIX)].reference(values, op)
        for out in op.outputs:
            if out is not None:
                _check_result(op.kind, out, values.arrays[out])
        for value in dead:
            values.arrays.pop(value, None)
    return [values.raw(v) for v in graph.outputs]


def has_op(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in ENN


def run_op(op: Op, arrays: Mapping[Value, Array], numerics: str = "enn") -> Array:
    """Evaluate one operator with a single output."""
    values = Values(Graph("step", [], [], [op]), [])
    values.arrays.update(arrays)
    ENN[op.kind.removeprefix(PREFIX)].reference(values, op)
    out = op.outputs[0]
    assert out is not None
    result = values.arrays[out]
    return result.reshape(out.bound) if result.size == 1 else result  # a scalar may arrive as a vector


def _check_result(kind: str, out: Value, result: Array) -> None:
    if result.shape != out.bound or result.dtype != out.dtype:
        raise GraphError(
            f"{kind} {out.name!r}", f"must give {out.bound} of {out.dtype}", value=(result.shape, result.dtype)
        )
