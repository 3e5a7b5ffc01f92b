"""Reference interpreter of ENN graphs in numpy, with the numerics ``enn`` (see ``numerics.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgewright.ir.enn.numerics import Values
from edgewright.ir.enn.table import ENN, PREFIX
from edgewright.ir.graph import Array, Graph, GraphError, Op, Value
from edgewright.ir.liveness import last_uses


def execute(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Run a graph; intermediate values are freed after their last use."""
    values = Values(graph, list(inputs))
    for op, dead in last_uses(graph).items():
        ENN[op.kind.removeprefix(PREFIX)].meaning(values, op)
        for out in op.outputs:
            if out is not None:
                _compare(op.kind, out, values.held[out])
        for value in dead:
            values.held.pop(value, None)
    return [values.stored(v) for v in graph.outputs]


def known(kind: str) -> bool:
    return kind.removeprefix(PREFIX) in ENN


def run_op(op: Op, held: Mapping[Value, Array], numerics: str = "enn") -> Array:
    """Evaluate one operator with a single output."""
    values = Values(Graph("step", [], [], [op]), [])
    values.held.update(held)
    ENN[op.kind.removeprefix(PREFIX)].meaning(values, op)
    out = op.outputs[0]
    assert out is not None
    made = values.held[out]
    return made.reshape(out.bound) if made.size == 1 else made  # a scalar may arrive as a vector


def _compare(kind: str, out: Value, made: Array) -> None:
    if made.shape != out.bound or made.dtype != out.dtype:
        raise GraphError(
            f"{kind} {out.name!r}", f"must give {out.bound} of {out.dtype}", value=(made.shape, made.dtype)
        )
